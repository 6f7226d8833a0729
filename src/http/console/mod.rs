//! Web console: a read-only page with the locks of this daemon.
//!
//! ```text
//! GET /                       page
//! GET /console/{file}         its files
//! GET /console/api/overview   daemon and storage
//! GET /console/api/locks      page of locks, by prefix
//! GET /console/api/lock       one lock: explanation and history
//! GET /console/api/events     server-sent events: snapshots of one of the views
//! ```
//!
//! `guard` refuses requests of other sites, `assets` has the files, `request` parses
//! queries, `snapshot` reads the driver, `json` has the format, `events` the streams.

mod assets;
mod events;
mod guard;
mod json;
mod request;
mod snapshot;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Path, Request, State},
    http::{StatusCode, Uri, header::RETRY_AFTER},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::{Semaphore, watch};

pub(super) use events::Lifetime;
use guard::Guard;
use request::View;
use snapshot::Reader;

use super::answer;
use crate::{config::Config, driver::Driver};
use leasehold_store::LeaseStore;
use leasehold_time::clock;
use leasehold_types::name::InvalidName;

/// Address at which the command line finds a daemon by default.
const DEFAULT_LISTEN: &str = "127.0.0.1:7420";

/// Facts about the daemon that do not change.
struct About {
    /// Address for the command line, unless it is the default one.
    endpoint: Option<String>,
    listen: Vec<String>,
    host: String,
    pid: u32,
    /// Start in milliseconds of the Unix epoch.
    started: u64,
    history_limit: usize,
}

/// State of the console. Cheap to clone.
#[derive(Clone)]
pub(super) struct Console {
    reader: Reader,
    guard: Arc<Guard>,
    streams: Arc<Semaphore>,
}

impl Console {
    /// Creates the console of a daemon with these gRPC addresses.
    pub(super) fn new(
        config: &Config,
        listen: Vec<String>,
        driver: Driver,
        store: Arc<dyn LeaseStore>,
        draining: watch::Receiver<bool>,
    ) -> Self {
        let advertised = config.advertise.as_deref();
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let about = About {
            endpoint: endpoint(advertised, &listen),
            listen,
            host: host.unwrap_or_default(),
            pid: std::process::id(),
            started: json::unix_millis(clock::wall()),
            history_limit: config.history,
        };
        let advertised = advertised.and_then(|address| address.strip_prefix("http://"));
        let names = config.console_hosts.iter().map(String::as_str);
        let names = names.chain(advertised.map(guard::name_of)).map(str::to_owned);
        Self {
            guard: Arc::new(Guard::new(names)),
            reader: Reader::new(driver, about, store, draining),
            streams: Arc::new(Semaphore::new(events::MAX_STREAMS)),
        }
    }

    /// Returns the routes of the console.
    pub(super) fn router<S>(self) -> Router<S> {
        let guard = Arc::clone(&self.guard);
        Router::new()
            .route("/", get(async || assets::page()))
            .route("/console/{file}", get(file))
            .route("/console/api/overview", get(overview))
            .route("/console/api/locks", get(locks))
            .route("/console/api/lock", get(lock))
            .route("/console/api/events", get(stream))
            .layer(middleware::from_fn(move |request: Request, next: Next| {
                protect(Arc::clone(&guard), request, next)
            }))
            .with_state(self)
    }
}

/// Returns the address for the command line: the advertised one, or that of the first
/// listener. None if the command line uses it by default.
fn endpoint(advertised: Option<&str>, listen: &[String]) -> Option<String> {
    let of = |address: &String| match address.as_str() {
        DEFAULT_LISTEN => None,
        unix if unix.starts_with("unix:") => Some(unix.to_owned()),
        tcp => Some(format!("http://{tcp}")),
    };
    advertised.map(str::to_owned).or_else(|| listen.first().and_then(of))
}

async fn protect(guard: Arc<Guard>, request: Request, next: Next) -> Response {
    match guard.check(request.uri(), request.headers()) {
        Ok(()) => assets::restrict(next.run(request).await),
        Err(refused) => assets::restrict(answer::failed(
            StatusCode::FORBIDDEN,
            "FORBIDDEN",
            None,
            refused.message(),
        )),
    }
}

async fn file(Path(name): Path<String>) -> Response {
    assets::find(&name).unwrap_or_else(answer::not_found)
}

async fn overview(State(console): State<Console>) -> Response {
    answer::text(StatusCode::OK, console.reader.read(&View::Daemon, true).await)
}

async fn locks(State(console): State<Console>, uri: Uri) -> Response {
    console.answer(View::parse_locks(uri.query().unwrap_or_default())).await
}

async fn lock(State(console): State<Console>, uri: Uri) -> Response {
    console.answer(View::parse_lock(uri.query().unwrap_or_default())).await
}

impl Console {
    async fn answer(&self, view: Result<View, InvalidName>) -> Response {
        match view {
            Ok(view) => answer::text(StatusCode::OK, self.reader.read(&view, true).await),
            Err(invalid) => answer::invalid(invalid),
        }
    }
}

async fn stream(
    State(console): State<Console>,
    Extension(lifetime): Extension<Lifetime>,
    uri: Uri,
) -> Response {
    let view = match View::parse(uri.query().unwrap_or_default()) {
        Ok(view) => view,
        Err(invalid) => return answer::invalid(invalid),
    };
    events::start(console.reader, view, &console.streams, lifetime).unwrap_or_else(|| {
        let message = "too many pages are open; close one";
        let answer = answer::failed(StatusCode::SERVICE_UNAVAILABLE, "LIMIT", None, message);
        ([(RETRY_AFTER, "5")], answer).into_response()
    })
}

//! Read-only HTTP interface for clients without gRPC: probes, load balancers,
//! scripts.
//!
//! ```text
//! GET /v1/elections/{namespace}/{name}           leader of an election
//! GET /v1/elections/{namespace}/{name}?self=1    200 if a client of this daemon leads, else 503;
//!                                                reads no storage, so a peer's leader may be missing
//! GET /healthz                                   200 while the daemon answers
//! GET /metrics                                   metrics in the text formats of Prometheus
//! GET /readyz                                    200 if locks can be granted, else 503
//! ```
//!
//! With the setting `console`, `/` and `/console/` serve a web console.
//!
//! An answer may be out of date when it arrives: a client that acts on it needs the
//! token.
//!
//! `serve` accepts connections and limits them, the router here selects the
//! handler, `request` parses names and queries, `answer` writes JSON, `metrics` the text of the metrics.

mod answer;
mod console;
mod metrics;
mod request;
mod serve;

use std::sync::Arc;

use answer::Answer;
use axum::{Router, extract::State, http::Uri, routing::get};
use console::Console;
use request::ElectionRequest;
pub use serve::{MAX_CONNECTIONS, serve};
use tokio::sync::watch;

use crate::{config::Config, driver::Driver};
use leasehold_store::LeaseStore;

/// State of the HTTP interface. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    driver: Driver,
    store: Arc<dyn LeaseStore>,
    draining: watch::Receiver<bool>,
    console: Option<Console>,
}

impl Http {
    /// Creates the state. `draining` becomes true when the daemon begins to shut down.
    #[must_use]
    pub fn new(
        driver: Driver,
        store: Arc<dyn LeaseStore>,
        draining: watch::Receiver<bool>,
    ) -> Self {
        Self { driver, store, draining, console: None }
    }

    /// Adds the web console of a daemon with these gRPC addresses.
    #[must_use]
    pub fn with_console(mut self, config: &Config, listen: Vec<String>) -> Self {
        let (driver, store) = (self.driver.clone(), Arc::clone(&self.store));
        self.console = Some(Console::new(config, listen, driver, store, self.draining.clone()));
        self
    }

    fn router(self) -> Router {
        let console = self.console.clone().map(Console::router).unwrap_or_default();
        console
            .route("/healthz", get(async || answer::well("ok")))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics::metrics))
            .route("/v1/elections/{*election}", get(election))
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(async || answer::not_found())
            .with_state(self)
    }
}

async fn ready(State(http): State<Http>) -> Answer {
    if *http.draining.borrow() {
        return answer::stopping();
    }
    match http.store.unavailability() {
        Some(error) => answer::store_error(&error),
        None => answer::well("ready"),
    }
}

async fn election(State(http): State<Http>, uri: Uri) -> Answer {
    match ElectionRequest::parse(&uri) {
        None => answer::not_found(),
        Some(Err(invalid)) => answer::invalid(invalid),
        // This daemon knows whether its own client leads: a probe needs no storage call.
        Some(Ok(ElectionRequest { name, own: true })) => {
            answer::election(&http.driver.view(&name), true)
        }
        Some(Ok(ElectionRequest { name, own: false })) => match http.driver.inspect(&name).await {
            Ok(view) => answer::election(&view, false),
            Err(error) => answer::store_error(&error),
        },
    }
}

async fn method_not_allowed(uri: Uri) -> Answer {
    let is_found = !uri.path().starts_with("/v1/") || ElectionRequest::parse(&uri).is_some();
    if is_found { answer::method_not_allowed() } else { answer::not_found() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{
        body::Body,
        http::{Method, Request, StatusCode},
    };
    use leasehold_core::{lock, session};
    use leasehold_embedded_store::Embedded;
    use leasehold_time::Entropy;
    use tower::ServiceExt;

    use super::*;
    use crate::telemetry::Telemetry;

    fn router(store: Arc<dyn LeaseStore>) -> Router {
        let ttl = Duration::from_secs(10);
        let sessions = session::Settings {
            default_ttl: ttl,
            max_ttl: ttl,
            max_sessions: 1,
            max_locks_per_session: 1,
        };
        let locks = lock::Settings {
            lease_duration: Duration::from_secs(15),
            linger: Duration::ZERO,
            poll_interval: Duration::from_secs(1),
            max_locks: 1,
            max_waiters_per_lock: 1,
            journal: leasehold_core::journal::Level::Off,
        };
        let driver = Driver::new(
            sessions,
            locks,
            Arc::clone(&store),
            Entropy::seeded(1),
            Telemetry::default(),
        );
        let (_, draining) = watch::channel(false);
        Http::new(driver, store, draining).router()
    }

    #[tokio::test]
    async fn unknown_paths_and_methods_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let router = router(Arc::new(Embedded::open(dir.path()).unwrap()));
        let status = async |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            router.clone().oneshot(request).await.unwrap().status()
        };
        for path in [
            "/",
            "/v1/elections",
            "/v1/elections/",
            "/v1/elections/a",
            "/healthz/",
            "/v2/elections/a/b",
        ] {
            for method in [Method::GET, Method::HEAD, Method::PUT] {
                assert_eq!(status(method, path).await, StatusCode::NOT_FOUND, "{path}");
            }
        }
        for path in ["/healthz", "/readyz", "/v1/elections/default/a", "/v1/elections/default/"] {
            assert_eq!(status(Method::PUT, path).await, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(status(Method::HEAD, path).await, status(Method::GET, path).await);
            assert_ne!(status(Method::GET, path).await, StatusCode::NOT_FOUND, "{path}");
        }
    }
}

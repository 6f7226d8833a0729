//! The daemon: opens the store, binds the listeners, serves, and notifies all
//! holders before it stops.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tonic::service::Routes;
use tonic_health::ServingStatus;

use crate::{
    config::{self, Config, Listen, Store},
    driver::Driver,
    http::{self, Http},
    listen::{Incoming, Listener},
    rpc,
    telemetry::{
        Telemetry,
        metrics::Metrics,
        otlp::{MetricExporter, Otlp},
    },
};
use leasehold_azure_store::{
    AzureStore,
    account::{self, Account},
    doctor,
};
use leasehold_core::{lock, session};
use leasehold_embedded_store::{Embedded, OpenError};
use leasehold_runtime::sleep;
use leasehold_store::{Endpoint, LeaseStore, finding::CheckStatus};
use leasehold_time::Entropy;

/// Time that streams have to end at shutdown.
const STREAM_CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

/// Time for the last export of metrics.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of open files besides connections.
const OTHER_FILES: usize = 64;

/// Interval of updates of the health service.
const CHECK_HEALTH: Duration = Duration::from_millis(500);

/// Reason why the daemon did not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory can't be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The storage account can't be called.
    #[error(transparent)]
    Account(#[from] account::Error),
    /// The storage account or its container is unusable.
    #[error("can't keep locks in {place}: {why}")]
    Unusable {
        /// Location of the container.
        place: String,
        /// Failed check and its fix.
        why: String,
    },
    /// A listener could not be bound.
    #[error("can't listen on {address}: {}", listen_problem(.source))]
    Listen {
        /// Address of the listener.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The operating system returned no random numbers.
    #[error("can't get random numbers from the operating system: {0}")]
    Entropy(io::Error),
    /// A listener failed.
    #[error("serving failed: {0}")]
    Serve(String),
    /// The clean shutdown could not be recorded.
    #[error("failed to record the clean shutdown, so that the next start has to wait: {0}")]
    Close(leasehold_store::Error),
    /// A second signal stopped the daemon immediately.
    #[error(
        "stopped immediately, without a clean shutdown: the next start grants no locks until the \
         validities that holders received have ended"
    )]
    Aborted,
}

/// Cause of a failed listener, with its fix if it is known.
fn listen_problem(error: &io::Error) -> String {
    let cause = match error.get_ref() {
        None => "address already in use".to_owned(),
        // Another daemon listens on the Unix socket.
        Some(_) => error.to_string(),
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "{cause}; stop the process that uses it, or choose another address with --listen or \
             --http-listen"
        ),
        _ => error.to_string(),
    }
}

/// Daemon with bound listeners that does not serve yet.
pub struct Daemon {
    config: Config,
    driver: Driver,
    store: Arc<dyn LeaseStore>,
    listeners: Vec<Listener>,
    http_listeners: Vec<Listener>,
    exporter: Option<MetricExporter>,
}

impl Daemon {
    /// Opens the store and binds the listeners. Exports no telemetry
    /// without `otlp`.
    pub async fn bind(config: Config, otlp: Option<&Otlp>) -> Result<Self, Error> {
        let mut entropy = Entropy::system().map_err(Error::Entropy)?;
        let store: Arc<dyn LeaseStore> = match config.store {
            Store::Embedded => Arc::new(Embedded::open(&config.data_dir)?),
            Store::Azure => Arc::new(open_azure(&config.azure, &mut entropy).await?),
        };
        if let Some(trouble) = store.unavailability() {
            tracing::warn!("{trouble}");
        }
        let listeners = listen_on(&config.listen, config.socket_mode).await?;
        let http_listeners = listen_on(&config.http_listen, config.socket_mode).await?;
        let mut telemetry =
            Telemetry::new(config.history).with_tracing(otlp.and_then(Otlp::tracing));
        let exporter = otlp.and_then(Otlp::metrics);
        if exporter.is_some() {
            telemetry = telemetry.with_metrics(Arc::new(Metrics::new(config.metrics_lock_names)));
        }
        let listeners = (listeners, http_listeners);
        let mut daemon = Self::with_telemetry(config, store, entropy, listeners, telemetry);
        daemon.exporter = exporter;
        daemon.log_start();
        Ok(daemon)
    }

    /// Logs one line with the main settings and addresses.
    fn log_start(&self) {
        let Config { default_ttl, max_ttl, lease_duration, drain_timeout, .. } = self.config;
        let length = humantime::format_duration;
        let location = match self.config.store {
            Store::Embedded => self.config.data_dir.display().to_string(),
            Store::Azure => self.store.describe(),
        };
        let http_listen = Some(self.http_addresses().join(",")).filter(|all| !all.is_empty());
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            pid = std::process::id(),
            store = self.config.store.name(),
            location,
            listen = self.addresses().join(","),
            http_listen,
            default_ttl = %length(default_ttl),
            max_ttl = %length(max_ttl),
            lease_duration = %length(lease_duration),
            drain_timeout = %length(drain_timeout),
            max_connections = self.config.max_connections,
            max_sessions = self.config.max_sessions,
            max_locks = self.config.max_locks,
            max_locks_per_session = self.config.max_locks_per_session,
            max_waiters_per_lock = self.config.max_waiters_per_lock,
            "daemon started"
        );
    }

    /// Creates a daemon from an open store and bound listeners.
    #[must_use]
    pub fn new(
        config: Config,
        store: Arc<dyn LeaseStore>,
        entropy: Entropy,
        listeners: Vec<Listener>,
        http_listeners: Vec<Listener>,
    ) -> Self {
        let telemetry = Telemetry::new(config.history);
        Self::with_telemetry(config, store, entropy, (listeners, http_listeners), telemetry)
    }

    fn with_telemetry(
        config: Config,
        store: Arc<dyn LeaseStore>,
        entropy: Entropy,
        (listeners, http_listeners): (Vec<Listener>, Vec<Listener>),
        mut telemetry: Telemetry,
    ) -> Self {
        if !http_listeners.is_empty() && telemetry.metrics().is_none() {
            telemetry = telemetry.with_metrics(Arc::new(Metrics::new(config.metrics_lock_names)));
        }
        let sessions = session::Settings {
            default_ttl: config.default_ttl,
            max_ttl: config.max_ttl,
            max_sessions: config.max_sessions,
            max_locks_per_session: config.max_locks_per_session,
        };
        let locks = lock::Settings {
            lease_duration: config.lease_duration,
            linger: config.linger,
            poll_interval: config.poll_interval,
            max_locks: config.max_locks,
            max_waiters_per_lock: config.max_waiters_per_lock,
            journal: telemetry.journal_level(),
        };
        let addresses = listeners.iter().map(Listener::address);
        if let Some(endpoint) = endpoint(config.advertise.as_deref(), addresses) {
            store.advertise(endpoint);
        }
        let driver = Driver::new(sessions, locks, Arc::clone(&store), entropy, telemetry);
        Self { config, driver, store, listeners, http_listeners, exporter: None }
    }

    /// Core and its surroundings, for the checks of a simulation.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Addresses of the listeners for gRPC.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// Addresses of the listeners for HTTP.
    #[must_use]
    pub fn http_addresses(&self) -> Vec<String> {
        self.http_listeners.iter().map(Listener::address).collect()
    }

    /// Serves until `shutdown` completes. Then grants nothing more, notifies
    /// holders, waits until each grant is released or past its deadline, and ends
    /// cleanly. Stops immediately when `abort` completes.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()>,
        abort: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let addresses = self.addresses();
        let Self { config, driver, store, listeners, http_listeners, exporter } = self;
        let (routes, health) = rpc::routes(&driver, config.reflection);
        let (stop, stopped) = watch::channel(false);
        let (drain, draining) = watch::channel(false);
        let mut servers = Servers::new();
        let other_files = OTHER_FILES + http_listeners.len() * http::MAX_CONNECTIONS;
        let most = limit_connections(config.max_connections, other_files);
        serve_rpc(&mut servers, listeners, &routes, most, &stopped);
        let mut http = Http::new(driver.clone(), Arc::clone(&store), draining);
        if config.console {
            http = http.with_console(&config, addresses);
        }
        serve_http(&mut servers, http_listeners, &http, &stopped);
        let timer = tokio::spawn(driver.clone().keep_time());
        let polls = tokio::spawn(driver.clone().poll_peers());
        let exports = exporter
            .map(|exporter| tokio::spawn(export_metrics(driver.clone(), exporter, stopped)));
        let checks = tokio::spawn(report_health(Arc::clone(&store), health.clone()));

        let serve_and_drain = async {
            let served = tokio::select! {
                () = shutdown => Ok(()),
                error = first_failure(&mut servers) => Err(error),
            };
            checks.abort();
            drain.send_replace(true);
            health.set_service_status("", ServingStatus::NotServing).await;
            let (sessions, locks) = driver.counts();
            tracing::info!(sessions, locks, "shutting down: draining");
            driver.drain(config.drain_timeout).await;
            let closed = store.close().await.map_err(Error::Close);
            driver.end_streams();
            _ = stop.send(true);
            tokio::select! {
                () = async { while servers.join_next().await.is_some() {} } => {}
                () = sleep(STREAM_CLOSE_TIMEOUT) => {}
            }
            if let Some(exports) = exports {
                tokio::select! {
                    _ = exports => {}
                    () = sleep(LAST_EXPORT_TIMEOUT) => {}
                }
            }
            served.and(closed)?;
            tracing::info!("stopped");
            Ok(())
        };
        let outcome = tokio::select! {
            outcome = serve_and_drain => outcome,
            () = abort => Err(Error::Aborted),
        };
        timer.abort();
        polls.abort();
        outcome
    }
}

/// One task for each listener.
type Servers = JoinSet<Result<(), tonic::transport::Error>>;

/// Serves gRPC on all listeners, with at most `most` connections in total.
fn serve_rpc(
    servers: &mut Servers,
    listeners: Vec<Listener>,
    routes: &Routes,
    most: usize,
    stopped: &watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(most));
    for listener in listeners {
        let mut stopped = stopped.clone();
        servers.spawn(rpc::server().add_routes(routes.clone()).serve_with_incoming_shutdown(
            Incoming::new(listener, Arc::clone(&permits)),
            async move { _ = stopped.wait_for(|stopped| *stopped).await },
        ));
    }
}

/// Serves HTTP on all listeners, each with its own limit of connections.
fn serve_http(
    servers: &mut Servers,
    listeners: Vec<Listener>,
    http: &Http,
    stopped: &watch::Receiver<bool>,
) {
    for listener in listeners {
        let incoming = Incoming::new(listener, Arc::new(Semaphore::new(http::MAX_CONNECTIONS)));
        let server = http::serve(incoming, http.clone(), stopped.clone());
        servers.spawn(async {
            server.await;
            Ok(())
        });
    }
}

/// Waits for the first listener that ends before the daemon stops. Never ends if
/// there is none.
async fn first_failure(servers: &mut Servers) -> Error {
    match servers.join_next().await {
        Some(Ok(Ok(()))) => Error::Serve("a listener ended".to_owned()),
        Some(Ok(Err(error))) => Error::Serve(error.to_string()),
        Some(Err(error)) => Error::Serve(error.to_string()),
        None => std::future::pending().await,
    }
}

/// Checks an account, and opens the store in it.
async fn open_azure(azure: &config::Azure, entropy: &mut Entropy) -> Result<AzureStore, Error> {
    let settings = azure.settings();
    let account = Account::new(&settings)?;
    let report = doctor::check(&account, &settings, entropy).await;
    if let Some(why) = report.failure() {
        return Err(Error::Unusable { place: account.display(), why });
    }
    for finding in report.findings() {
        match finding.status {
            CheckStatus::Ok => tracing::debug!("{}", finding.message()),
            CheckStatus::Note => tracing::info!("{}", finding.message()),
            CheckStatus::Warning | CheckStatus::Failed => tracing::warn!("{}", finding.message()),
        }
    }
    let entropy = Entropy::system().map_err(Error::Entropy)?;
    Ok(AzureStore::new(account, &settings, this_daemon(), entropy))
}

/// Returns the human-readable name of this daemon.
fn this_daemon() -> String {
    format!("{} (pid {})", host_name().unwrap_or_default(), std::process::id())
}

fn host_name() -> Option<String> {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok())
}

/// Address at which operators' requests reach this daemon: the configured one, or
/// else that of a listener. A listener on one address is reached by that address.
/// One on loopback, on all addresses or on a Unix socket is reached on this host.
fn endpoint(advertised: Option<&str>, listeners: impl Iterator<Item = String>) -> Option<Endpoint> {
    if let Some(address) = advertised {
        return Some(Endpoint { address: address.into(), host: None });
    }
    let host = host_name().filter(|host| !host.is_empty())?;
    let here =
        |address: String| Endpoint { address: address.into(), host: Some(host.as_str().into()) };
    let mut local = None;
    for listener in listeners {
        if listener.starts_with("unix:") {
            local.get_or_insert(here(listener));
        } else if let Ok(address) = listener.parse::<SocketAddr>() {
            let loopback: IpAddr = match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            let (ip, port) = (address.ip().to_canonical(), address.port());
            if ip.is_unspecified() {
                local.get_or_insert(here(format!("http://{}", SocketAddr::new(loopback, port))));
            } else if ip.is_loopback() {
                local.get_or_insert(here(format!("http://{address}")));
            } else {
                return Some(Endpoint { address: format!("http://{address}").into(), host: None });
            }
        }
    }
    local
}

/// Binds all listeners.
async fn listen_on(all: &[Listen], socket_mode: u32) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::with_capacity(all.len());
    for listen in all {
        let bound = Listener::bind(listen, socket_mode).await;
        let address = listen.to_string();
        listeners.push(bound.map_err(|source| Error::Listen { address, source })?);
    }
    Ok(listeners)
}

/// Returns the maximum number of connections: the configured one, or fewer if the limit
/// of open files is lower. Some files are needed for other purposes.
fn limit_connections(asked: usize, other_files: usize) -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        Ok(usize::try_from(hard).unwrap_or(usize::MAX))
    });
    let most = limit.map_or(asked, |files| files.saturating_sub(other_files).max(1));
    if asked > most {
        tracing::warn!(asked, most, "max_connections reduced to fit the limit of open files");
    }
    asked.min(most)
}

/// Exports metrics at an interval, and a last time when the daemon has stopped.
async fn export_metrics(
    driver: Driver,
    exporter: MetricExporter,
    mut stopped: watch::Receiver<bool>,
) {
    let mut is_last = false;
    while !is_last {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => is_last = true,
            () = sleep(exporter.interval) => {}
        }
        if let Some(families) = driver.metrics().await
            && let Err(why) = exporter.export(&families).await
        {
            // Lines with this target are limited, and are not exported.
            tracing::error!(target: "opentelemetry", why, "failed to export metrics");
        }
    }
}

/// Reports the service as healthy while the store can grant.
async fn report_health(store: Arc<dyn LeaseStore>, health: tonic_health::server::HealthReporter) {
    let mut last = None;
    loop {
        let serving = store.unavailability().is_none();
        if last.replace(serving) != Some(serving) {
            let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
            health.set_service_status("", status).await;
        }
        sleep(CHECK_HEALTH).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_derived_from_listeners() {
        let of = |listeners: &[&str]| {
            let endpoint = endpoint(None, listeners.iter().map(|at| (*at).to_owned()))?;
            assert!(endpoint.host.is_none_or(|host| Some(&*host) == host_name().as_deref()));
            Some(endpoint.address.to_string())
        };
        assert_eq!(of(&["127.0.0.1:7420"]).unwrap(), "http://127.0.0.1:7420");
        assert_eq!(of(&["0.0.0.0:7420"]).unwrap(), "http://127.0.0.1:7420");
        assert_eq!(of(&["[::]:7420"]).unwrap(), "http://[::1]:7420");
        assert_eq!(of(&["unix:/run/l.sock"]).unwrap(), "unix:/run/l.sock");
        assert_eq!(of(&["unix:/run/l.sock", "127.0.0.1:1"]).unwrap(), "unix:/run/l.sock");
        assert_eq!(of(&["127.0.0.1:1", "10.0.0.5:7420"]).unwrap(), "http://10.0.0.5:7420");
        assert_eq!(of(&[]), None);
        let routable = endpoint(None, ["10.0.0.5:7420".to_owned()].into_iter()).unwrap();
        assert_eq!(routable.host, None);
        let given = endpoint(Some("http://a:1"), ["127.0.0.1:1".to_owned()].into_iter()).unwrap();
        assert_eq!((&*given.address, given.host), ("http://a:1", None));
    }
}

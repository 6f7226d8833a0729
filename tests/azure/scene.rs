//! A container of its own behind a proxy of its own: where a test plays the
//! network, the storage and the operator.

use leasehold::config;
use leasehold_azure_store::{AzureStore, account::Account};
use leasehold_store::LeaseStore;
use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    proxy::{Kind, Proxy, Seen},
    rest::{Blob, Container, Rest},
};
use std::{
    any::type_name,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::task::JoinHandle;

/// The duration of leases, the shortest that there is.
pub(crate) const DURATION: Duration = Duration::from_secs(15);

/// Of which a holder counts on this much: what drift and margin leave.
pub(crate) const COUNTED_ON: Duration = Duration::from_millis(13_970);

/// A container, and a proxy on the way to it.
pub(crate) struct Scene {
    pub(crate) proxy: Proxy,
    /// Past the proxy: what the operator sees and changes.
    pub(crate) container: Container,
    name: String,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("scene-{}", COUNT.fetch_add(1, Relaxed));
        let azurite = Azurite::shared();
        let container = Rest::new(azurite).container(&name);
        container.create().await.ok();
        Self { proxy: Proxy::start(azurite.port()), container, name }
    }

    /// A lock's blob, past the proxy.
    pub(crate) fn blob(&self, lock: &str) -> Blob {
        self.container.blob(&format!("locks/default/{lock}"))
    }

    /// What is kept with a lock's blob.
    pub(crate) async fn record(&self, lock: &str) -> BTreeMap<String, String> {
        self.blob(lock).head().await.ok().metadata()
    }

    /// The token that is kept with a lock's blob.
    pub(crate) async fn token(&self, lock: &str) -> u64 {
        self.record(lock).await["token"].parse().unwrap()
    }

    /// available, leased, expired, breaking, broken.
    pub(crate) async fn lease_state(&self, lock: &str) -> String {
        self.blob(lock).head().await.ok().lease_state().to_owned()
    }

    /// A store that reaches the container through the proxy.
    pub(crate) fn store(&self) -> Arc<dyn LeaseStore> {
        self.store_via(self.proxy.port())
    }

    /// A store that reaches the container past the proxy.
    pub(crate) fn store_past(&self) -> Arc<dyn LeaseStore> {
        self.store_via(Azurite::shared().port())
    }

    /// A store that deletes what was idle for so long, through the proxy.
    pub(crate) fn store_that_collects(&self, gc_after: Duration) -> Arc<dyn LeaseStore> {
        open(&config::Azure { gc_after, ..self.config(self.proxy.port()) })
    }

    fn store_via(&self, port: u16) -> Arc<dyn LeaseStore> {
        open(&self.config(port))
    }

    fn config(&self, port: u16) -> config::Azure {
        let connection_string = Azurite::shared().connection_string_via(port);
        config::Azure {
            connection_string: Some(config::SecretText::new(connection_string)),
            container: self.name.clone(),
            ..config::Azure::default()
        }
    }

    /// A daemon whose storage is reached through the proxy. What it called
    /// while it started is forgotten.
    pub(crate) fn daemon(&self, arguments: &[&str]) -> Daemon {
        let daemon = self.daemon_via(self.proxy.port(), arguments);
        self.proxy.clear();
        daemon
    }

    /// A daemon whose storage is reached past the proxy.
    pub(crate) fn daemon_past(&self, arguments: &[&str]) -> Daemon {
        self.daemon_via(Azurite::shared().port(), arguments)
    }

    fn daemon_via(&self, port: u16, arguments: &[&str]) -> Daemon {
        let connection_string = Azurite::shared().connection_string_via(port);
        let azure = ["--store", "azure", "--azure-connection-string", &connection_string];
        let more = ["--azure-container", &self.name, "--lease-duration", "15s", "--log", "error"];
        Daemon::start_with(&[&azure[..], &more, arguments].concat())
    }

    /// The kinds of the calls about a lock's blob, in the order in which they
    /// came.
    pub(crate) fn kinds(&self, lock: &str) -> Vec<Kind> {
        self.calls(lock).iter().map(|seen| seen.kind).collect()
    }

    /// The calls about a lock's blob.
    pub(crate) fn calls(&self, lock: &str) -> Vec<Seen> {
        let blob = format!("locks/default/{lock}");
        self.proxy.calls().into_iter().filter(|seen| seen.blob == blob).collect()
    }
}

fn open(config: &config::Azure) -> Arc<dyn LeaseStore> {
    let settings = config.settings();
    let account = Account::new(&settings).unwrap();
    Arc::new(AzureStore::new(
        account,
        &settings,
        "test".to_owned(),
        leasehold_time::Entropy::system().unwrap(),
    ))
}

/// Waits for what must come; fails if it does not, instead of waiting for ever.
pub(crate) async fn comes<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    tokio::select! {
        came = awaited => came,
        () = leasehold_runtime::sleep(Duration::from_secs(90)) => panic!("{what} does not come"),
    }
}

/// Scenarios that run at the same time, because they wait more than they work.
#[derive(Default)]
pub(crate) struct Together(Vec<(&'static str, JoinHandle<()>)>);

impl Together {
    /// Begins one more.
    #[must_use]
    pub(crate) fn and<S, F>(mut self, scenario: S) -> Self
    where
        S: FnOnce() -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.push((type_name::<S>(), tokio::spawn(scenario())));
        self
    }

    /// Waits for all, and fails with those that did.
    pub(crate) async fn end(self) {
        let mut failed = Vec::new();
        for (name, scenario) in self.0 {
            if scenario.await.is_err() {
                failed.push(name);
            }
        }
        assert!(failed.is_empty(), "failed: {failed:#?}");
    }
}

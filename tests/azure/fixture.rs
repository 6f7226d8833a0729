//! Fixture with a container and a proxy in front of it, for tests that act as
//! network, storage and operator.

use leasehold::config;
use leasehold_azure_store::{AzureStore, account::Account};
use leasehold_store::LeaseStore;
use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    proxy::{Kind, Proxy, RecordedCall},
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

/// Lease duration: the minimum.
pub(crate) const DURATION: Duration = Duration::from_secs(15);

/// Validity of a grant: the lease duration less drift and margin.
pub(crate) const VALIDITY: Duration = Duration::from_millis(13_970);

/// A container with a proxy in front of it.
pub(crate) struct Fixture {
    pub(crate) proxy: Proxy,
    /// Access without the proxy, for actions of an operator.
    pub(crate) container: Container,
    name: String,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fixture-{}", COUNT.fetch_add(1, Relaxed));
        let azurite = Azurite::shared();
        let container = Rest::new(azurite).container(&name);
        container.create().await.ok();
        Self { proxy: Proxy::start(azurite.port()), container, name }
    }

    /// Blob of a lock, without the proxy.
    pub(crate) fn blob(&self, lock: &str) -> Blob {
        self.container.blob(&format!("locks/default/{lock}"))
    }

    /// Record of a lock.
    pub(crate) async fn record(&self, lock: &str) -> BTreeMap<String, String> {
        self.blob(lock).head().await.ok().metadata()
    }

    /// Token in the record of a lock.
    pub(crate) async fn token(&self, lock: &str) -> u64 {
        self.record(lock).await["token"].parse().unwrap()
    }

    /// Lease state: available, leased, expired, breaking or broken.
    pub(crate) async fn lease_state(&self, lock: &str) -> String {
        self.blob(lock).head().await.ok().lease_state().to_owned()
    }

    /// A store behind the proxy.
    pub(crate) fn store(&self) -> Arc<dyn LeaseStore> {
        self.store_via(self.proxy.port())
    }

    /// A store that bypasses the proxy.
    pub(crate) fn store_direct(&self) -> Arc<dyn LeaseStore> {
        self.store_via(Azurite::shared().port())
    }

    /// A store behind the proxy that deletes blobs idle for longer than
    /// `gc_after`.
    pub(crate) fn store_with_gc(&self, gc_after: Duration) -> Arc<dyn LeaseStore> {
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

    /// A daemon behind the proxy. Its calls during the start are cleared from
    /// the record.
    pub(crate) fn daemon(&self, arguments: &[&str]) -> Daemon {
        let daemon = self.daemon_via(self.proxy.port(), arguments);
        self.proxy.clear();
        daemon
    }

    /// A daemon behind the proxy, with environment variables.
    pub(crate) fn daemon_with_variables(&self, variables: &[(&str, String)]) -> Daemon {
        let account = Azurite::shared().connection_string_via(self.proxy.port());
        let azure = ["--store", "azure", "--azure-connection-string", &account];
        let more = ["--azure-container", &self.name, "--lease-duration", "15s"];
        let daemon = Daemon::start_with_variables(&[&azure[..], &more].concat(), variables);
        self.proxy.clear();
        daemon
    }

    /// A daemon that bypasses the proxy.
    pub(crate) fn daemon_direct(&self, arguments: &[&str]) -> Daemon {
        self.daemon_via(Azurite::shared().port(), arguments)
    }

    fn daemon_via(&self, port: u16, arguments: &[&str]) -> Daemon {
        let connection_string = Azurite::shared().connection_string_via(port);
        let azure = ["--store", "azure", "--azure-connection-string", &connection_string];
        let more = ["--azure-container", &self.name, "--lease-duration", "15s", "--log", "error"];
        Daemon::start_with(&[&azure[..], &more, arguments].concat())
    }

    /// Kinds of the calls on a lock's blob, in order of arrival.
    pub(crate) fn kinds(&self, lock: &str) -> Vec<Kind> {
        self.calls(lock).iter().map(|call| call.kind).collect()
    }

    /// Calls on a lock's blob.
    pub(crate) fn calls(&self, lock: &str) -> Vec<RecordedCall> {
        let blob = format!("locks/default/{lock}");
        self.proxy.calls().into_iter().filter(|call| call.blob == blob).collect()
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

/// Waits for a future; panics after 90 s.
pub(crate) async fn wait_for<T>(name: &str, future: impl Future<Output = T>) -> T {
    tokio::select! {
        output = future => output,
        () = leasehold_runtime::sleep(Duration::from_secs(90)) => {
            panic!("timed out waiting for {name}")
        }
    }
}

/// Scenarios that run concurrently, because they wait most of the time.
#[derive(Default)]
pub(crate) struct Scenarios(Vec<(&'static str, JoinHandle<()>)>);

impl Scenarios {
    /// Starts a scenario.
    #[must_use]
    pub(crate) fn start<S, F>(mut self, scenario: S) -> Self
    where
        S: FnOnce() -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.push((type_name::<S>(), tokio::spawn(scenario())));
        self
    }

    /// Waits for all scenarios; panics with the names of failed ones.
    pub(crate) async fn join(self) {
        let mut failed = Vec::new();
        for (name, scenario) in self.0 {
            if scenario.await.is_err() {
                failed.push(name);
            }
        }
        assert!(failed.is_empty(), "failed: {failed:#?}");
    }
}

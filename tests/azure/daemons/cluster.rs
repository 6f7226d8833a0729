//! Daemons that share a container.

use std::{sync::Arc, time::Duration};

use leasehold_client::{Client, Guard};
use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    proxy::Proxy,
    rest::{Blob, Rest},
};
use serde_json::Value;
use tempfile::TempDir;

/// Lease duration of all daemons.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// Maximum poll interval of all daemons.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// Session TTL. Longer than a lease, so that the lease ends first.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Container and daemons of one test.
pub(crate) struct Cluster {
    container: &'static str,
    azurite: &'static Azurite,
}

impl Cluster {
    pub(crate) fn new(container: &'static str) -> Self {
        Self { container, azurite: Azurite::shared() }
    }

    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon_with(&[])
    }

    /// Starts a daemon with additional arguments.
    pub(crate) fn daemon_with(&self, more: &[&str]) -> Daemon {
        self.start("127.0.0.1:0", &self.azurite.connection_string(), more)
    }

    /// Starts a daemon behind a proxy.
    pub(crate) fn daemon_via(&self, proxy: &Proxy) -> Daemon {
        self.start("127.0.0.1:0", &self.azurite.connection_string_via(proxy.port()), &[])
    }

    /// Kills a daemon with SIGKILL and starts another one at the same address.
    pub(crate) fn restart(&self, mut daemon: Daemon) -> Daemon {
        daemon.process.child.kill().unwrap();
        daemon.process.end();
        self.start(daemon.address(), &self.azurite.connection_string(), &[])
    }

    fn start(&self, listen: &str, connection: &str, more: &[&str]) -> Daemon {
        let mut arguments = vec!["--store", "azure", "--azure-container", self.container];
        arguments.extend(["--azure-connection-string", connection]);
        arguments.extend(["--lease-duration", "15s", "--poll-interval", "1s", "--log", "off"]);
        arguments.extend(more);
        Daemon::start_in(Arc::new(TempDir::new().unwrap()), listen, &arguments)
    }

    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::start(self.azurite.port())
    }

    /// Blob of a lock, without a proxy.
    pub(crate) fn blob(&self, lock: &str) -> Blob {
        let container = Rest::new(self.azurite).container(self.container);
        container.blob(&format!("locks/default/{lock}"))
    }
}

/// Connects a client whose session outlives its leases.
pub(crate) async fn client(daemon: &Daemon, name: &str) -> Client {
    Client::builder(&daemon.endpoint).client_name(name).ttl(LONG).connect().await.unwrap()
}

/// Acquires a free lock.
pub(crate) async fn acquire_free(client: &Client, lock: &str) -> Guard {
    client.lock(lock).no_wait().acquire().await.unwrap()
}

/// Runs a command with JSON output. Returns its standard output, or standard
/// error if that is empty.
pub(crate) fn json(daemon: &Daemon, arguments: &[&str]) -> Value {
    let output = daemon.run(&[&["--output", "json"], arguments].concat());
    let text = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    serde_json::from_slice(text)
        .unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(text)))
}

//! Where daemons meet: a container of their own.

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

/// How long a lease lasts without a renewal, at all of these daemons.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// The longest wait of these daemons between two looks at another's lease.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// Longer than a lease: it is the lease that ends first.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A container, for the daemons of one test.
pub(crate) struct Place {
    container: &'static str,
    azurite: &'static Azurite,
}

impl Place {
    pub(crate) fn new(container: &'static str) -> Self {
        Self { container, azurite: Azurite::shared() }
    }

    /// Starts a daemon.
    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon_with(&[])
    }

    /// The same, with more arguments.
    pub(crate) fn daemon_with(&self, more: &[&str]) -> Daemon {
        self.start("127.0.0.1:0", &self.azurite.connection_string(), more)
    }

    /// Starts a daemon that reaches the storage through a proxy.
    pub(crate) fn daemon_via(&self, proxy: &Proxy) -> Daemon {
        self.start("127.0.0.1:0", &self.azurite.connection_string_via(proxy.port()), &[])
    }

    /// Kills a daemon with -9 and starts another in its place, on the same
    /// address.
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

    /// The blob of a lock, straight.
    pub(crate) fn blob(&self, lock: &str) -> Blob {
        let container = Rest::new(self.azurite).container(self.container);
        container.blob(&format!("locks/default/{lock}"))
    }
}

/// A client whose locks end with their leases rather than with its session.
pub(crate) async fn client(daemon: &Daemon, name: &str) -> Client {
    Client::builder(&daemon.endpoint).client_name(name).ttl(LONG).connect().await.unwrap()
}

/// Takes a lock that nobody has.
pub(crate) async fn take(client: &Client, lock: &str) -> Guard {
    client.lock(lock).no_wait().acquire().await.unwrap()
}

/// What a command says, for programs.
pub(crate) fn json(daemon: &Daemon, arguments: &[&str]) -> Value {
    let output = daemon.run(&[&["--output", "json"], arguments].concat());
    let said = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    serde_json::from_slice(said)
        .unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(said)))
}

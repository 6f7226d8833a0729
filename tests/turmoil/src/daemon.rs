//! Host with a daemon: the product from its listener to its storage client.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use futures_util::stream;
use leasehold::{
    config::{self, Config, SecretText},
    daemon::Daemon,
    listen::{Duplex, Listener, Sockets},
};
use leasehold_azure_store::{AzureStore, account::Account};
use leasehold_time::Entropy;
use tokio::sync::Notify;
use turmoil::net::TcpListener;

use crate::{
    record::{Record, Running},
    time, wire,
};

/// Port of daemons.
pub const PORT: u16 = 7420;

/// Returns the name of a daemon's host.
#[must_use]
pub fn host(place: usize) -> String {
    format!("daemon-{place}")
}

/// Settings of daemons and clients.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Lease duration.
    pub lease: Duration,
    /// TTL of sessions.
    pub ttl: Duration,
    /// Maximum interval between polls.
    pub poll: Duration,
    /// Linger time of an unused lease.
    pub linger: Duration,
    /// Drain timeout.
    pub drain: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            ttl: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            linger: Duration::ZERO,
            drain: Duration::from_secs(5),
        }
    }
}

impl Setup {
    fn config(self) -> Config {
        Config {
            default_ttl: self.ttl,
            lease_duration: self.lease,
            poll_interval: self.poll,
            linger: self.linger,
            drain_timeout: self.drain,
            ..Config::default()
        }
    }
}

/// Runs a daemon until it has stopped.
///
/// # Errors
/// Those of the daemon.
pub async fn serve(place: usize, setup: Setup, record: Arc<Record>) -> turmoil::Result {
    let azure = config::Azure {
        connection_string: Some(SecretText::new("UseDevelopmentStorage=true".to_owned())),
        container: "locks".to_owned(),
        ..config::Azure::default()
    }
    .settings();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
    let stop = Arc::new(Notify::new());
    let number = record.next_daemon();
    let account = Account::over(wire::transport(number), &azure)?;
    let name = format!("{} (pid {number})", host(place));
    let store = AzureStore::new(account, &azure, name, Entropy::seeded(time::seed()));
    let daemon = Daemon::new(
        setup.config(),
        Arc::new(store),
        Entropy::seeded(time::seed()),
        vec![Listener::Simulated(sockets(listener))],
        Vec::new(),
    );
    let driver = daemon.driver().clone();
    record.started(place, Running { number, driver, stop: Arc::clone(&stop) });
    daemon.run(stop.notified(), std::future::pending()).await?;
    record.ended(place);
    Ok(())
}

fn sockets(listener: TcpListener) -> Sockets {
    Box::pin(stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await;
        Some((accepted.map(|(socket, _)| Box::new(socket) as Box<dyn Duplex>), listener))
    }))
}

//! Session: the liveness contract of a client with a daemon, and its grants.
//!
//! `state.rs`, `inbound.rs`, `proclaim.rs` and `attachment.rs` form the sans-IO
//! state machine. `shared.rs` runs its actions. `stream.rs` is the task that reads
//! the stream. A task of the program sends its acquire directly on the stream, and
//! the stream task delivers the response directly to it.

mod acquire;
mod attachment;
mod grant;
mod inbound;
mod keep_alives;
mod pending_acquire;
mod proclaim;
mod shared;
#[cfg(feature = "simulation")]
mod simulation;
mod state;
mod stream;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

pub(crate) use grant::GrantId;
pub(crate) use pending_acquire::{AcquireOptions, Wait};

use self::{
    shared::{Inner, Reply, Shared, Waiter},
    state::Outcome,
    stream::Cleanup,
};
use crate::{Error, Loss, Reason, Risk, connection::Connection, pb, value::Value};
use leasehold_time::{ClockPair, Moment};

/// Parameters of a session, as sent by the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Identifier of the session in logs and listings of the daemon. It authorizes
    /// nothing.
    pub id: String,
    /// Time that the session survives after its last keep-alive.
    pub ttl: Duration,
    /// Version of the protocol in use.
    pub protocol_version: u32,
    /// Human-readable version of the daemon.
    pub daemon_version: String,
}

/// Settings sent when a session is opened.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) ttl: Option<Duration>,
    pub(crate) holder: pb::Holder,
    pub(crate) fenced: bool,
}

/// Session. Dropping it closes the session in the background.
pub(crate) struct Session {
    connection: Arc<Connection>,
    shared: Arc<Shared>,
}

impl Session {
    pub(crate) fn new(connection: Arc<Connection>, profile: Arc<Profile>) -> Arc<Self> {
        Arc::new(Self { connection, shared: Arc::new(Shared::new(profile)) })
    }

    pub(crate) fn info(&self) -> Option<SessionInfo> {
        self.shared.lock().state.info().cloned()
    }

    /// Returns the deadline of a grant: the instant until which the daemon grants
    /// the lock to no other acquire, by both clocks.
    pub(crate) fn deadline(&self, grant: GrantId) -> Moment {
        self.shared.update(|inner| {
            let now = ClockPair::now();
            let grant = inner.state.check_grant(grant, &now);
            grant.map_or(Moment::from_boot(Duration::ZERO), |grant| grant.deadline(&now))
        })
    }

    /// Returns the loss of a grant, by both clocks and the messages of the daemon. A
    /// lost grant stays lost.
    pub(crate) fn loss(&self, id: GrantId) -> Option<Loss> {
        self.shared.update(|inner| match inner.state.check_grant(id, &ClockPair::now()) {
            Some(grant) => grant.loss().cloned(),
            None => Some(Loss::new(Reason::UnknownHandle, "the lock was released")),
        })
    }

    /// Returns the latest warning and its number.
    pub(crate) fn risk(&self, id: GrantId) -> Option<(u64, Risk)> {
        self.shared.lock().state.grant(id)?.risk.clone()
    }

    /// Releases the lock of a dropped guard in the background.
    pub(crate) fn drop_user(&self, grant: GrantId) {
        self.update(|inner| inner.drop_user(grant));
    }

    /// Releases the lock, and waits until the daemon has confirmed the release.
    pub(crate) async fn release(&self, grant: GrantId) -> Result<(), Error> {
        let released = self.update(|inner| {
            let ticket = inner.drop_user(grant)?;
            let (reply, released) = oneshot::channel();
            inner.waiters.insert(ticket, Waiter { reply, progress: None, lock: None });
            Some(released)
        });
        let Some(released) = released else { return Ok(()) };
        let limit = self.connection.timeout();
        let reply = tokio::select! {
            biased;
            reply = released => reply,
            () = leasehold_runtime::sleep(limit) => {
                let cause = self.shared.lock().state.disconnect_cause().map(str::to_owned);
                let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                return Err(Error::unavailable(format!(
                    "no response to the release within {limit:?}{cause}; it is retried while \
                     the program runs, and the lock expires with the session TTL"
                )));
            }
        };
        match reply {
            Ok(Reply::Other(Outcome::Failed(error))) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => Err(runtime_gone()),
        }
    }

    /// Proclaims a value, and waits until the daemon has confirmed it. The caller
    /// must also wait for the loss of the grant, because a response may not follow
    /// it.
    pub(crate) async fn proclaim(
        &self,
        grant: GrantId,
        name: &str,
        value: Value,
    ) -> Result<(), Error> {
        let proclaimed = self.update(|inner| {
            let ticket = inner.state.proclaim(grant, name, value);
            let (reply, proclaimed) = oneshot::channel();
            inner.waiters.insert(ticket, Waiter { reply, progress: None, lock: None });
            proclaimed
        });
        match proclaimed.await {
            Ok(Reply::Other(Outcome::Failed(error))) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => Err(runtime_gone()),
        }
    }

    /// Marks a grant as lost for a reason of the client. The daemon holds the lock
    /// until it is released.
    pub(crate) fn lose(&self, grant: GrantId, loss: Loss) {
        self.shared.update(|inner| inner.state.lose(grant, loss));
    }

    /// Releases a lost grant whose guard still exists.
    pub(crate) fn release_lost(&self, grant: GrantId) {
        self.update(|inner| inner.state.release_lost(grant));
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Closes the session, and waits until the daemon has confirmed, at most for the
    /// connect timeout.
    pub(crate) async fn close(&self) {
        let stopped = self.shared.stopped.notified();
        let running = self.shared.update(|inner| {
            inner.state.close(Moment::now());
            inner.running
        });
        if running {
            tokio::select! {
                biased;
                () = stopped => {}
                () = leasehold_runtime::sleep(self.connection.timeout()) => {}
            }
        }
    }

    /// Changes the state, and starts the stream task if the session needs a stream
    /// and no task is running.
    fn update<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let (result, start) = self.shared.update(|inner| {
            let result = change(inner);
            let start = !inner.running && inner.state.has_work();
            inner.running |= start;
            (result, start)
        });
        if start {
            // Not under the lock: a runtime that has shut down drops the task at once,
            // and its cleanup locks the state.
            let cleanup = Cleanup::new(Arc::clone(&self.shared));
            let connection = Arc::clone(&self.connection);
            leasehold_runtime::spawn_on(
                self.connection.runtime(),
                stream::run(cleanup, connection),
            );
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.update(|inner| inner.state.close(Moment::now()));
    }
}

fn runtime_gone() -> Error {
    Error::unavailable("the tokio runtime of the client has shut down")
}

//! A session: a client's liveness contract with a daemon, and the locks that
//! it holds.
//!
//! `state.rs`, `hear.rs`, `proclaim.rs` and `attachment.rs` decide, without
//! waiting and without a clock; `shared.rs` does what they decided; `stream.rs` is the one
//! task that reads. An acquire goes from the program's task straight into the
//! stream, and its answer from the reading task straight back.

mod acquire;
mod ask;
mod attachment;
mod grant;
mod hear;
mod keep_alives;
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

pub(crate) use ask::{Terms, Wait};
pub(crate) use grant::GrantId;

use self::{
    attachment::out_of_reach,
    shared::{Inner, Reply, Shared, Waiter},
    state::Outcome,
    stream::Watch,
};
use crate::{Error, Loss, Reason, Risk, connection::Connection, pb, value::Value};
use leasehold_time::{ClockPair, Moment};

/// A session, as the daemon described it when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Names the session in the daemon's logs and listings. Gives no
    /// authority.
    pub id: String,
    /// How long the session outlives the client's last sign of life.
    pub ttl: Duration,
    /// The version of the protocol that is spoken.
    pub protocol_version: u32,
    /// The daemon's own version, for people.
    pub daemon_version: String,
}

/// How the client introduces itself when it opens a session.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) ttl: Option<Duration>,
    pub(crate) holder: pb::Holder,
    pub(crate) fenced: bool,
}

/// A session. Ends in the background when it is dropped.
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

    /// Until when the daemon keeps the lock from others, as far as this
    /// session was told and both clocks show.
    pub(crate) fn deadline(&self, grant: GrantId) -> Moment {
        self.shared.update(|inner| {
            let now = ClockPair::now();
            let grant = inner.state.look_at(grant, &now);
            grant.map_or(Moment::from_boot(Duration::ZERO), |grant| grant.deadline(&now))
        })
    }

    /// Whether the grant is lost, by both clocks and all that was heard. A
    /// loss that was seen once is never taken back.
    pub(crate) fn loss(&self, id: GrantId) -> Option<Loss> {
        self.shared.update(|inner| match inner.state.look_at(id, &ClockPair::now()) {
            Some(grant) => grant.loss().cloned(),
            None => Some(Loss::new(Reason::UnknownHandle, "the lock was given back")),
        })
    }

    /// The latest warning, and its number.
    pub(crate) fn risk(&self, id: GrantId) -> Option<(u64, Risk)> {
        self.shared.lock().state.grant(id)?.risk.clone()
    }

    /// Releases the lock of a guard that is gone.
    pub(crate) fn let_go(&self, grant: GrantId) {
        self.update(|inner| inner.let_go(grant));
    }

    /// The same, and waits until the daemon has confirmed it.
    pub(crate) async fn release(&self, grant: GrantId) -> Result<(), Error> {
        let released = self.update(|inner| {
            let ticket = inner.let_go(grant)?;
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
                let trouble = self.shared.lock().state.trouble().map(out_of_reach);
                let trouble = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
                return Err(Error::unavailable(format!(
                    "no response to the release within {limit:?}{trouble}; it is retried while \
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

    /// Shows a new value as the holder of the lock, and waits until the daemon
    /// has confirmed it. Whoever waits must also look out for the loss of the
    /// grant, with which the answer may never come.
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

    /// The grant is lost for a reason that the client found itself. The daemon
    /// keeps the lock from others until it is released.
    pub(crate) fn lose(&self, grant: GrantId, loss: Loss) {
        self.shared.update(|inner| inner.state.lose(grant, loss));
    }

    /// Releases a lost grant whose guard is still there.
    pub(crate) fn give_up(&self, grant: GrantId) {
        self.update(|inner| inner.state.give_up(grant));
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ends the session, and waits until the daemon has heard of it, though
    /// not for long.
    pub(crate) async fn close(&self) {
        let rested = self.shared.rested.notified();
        let running = self.shared.update(|inner| {
            inner.state.close(Moment::now());
            inner.running
        });
        if running {
            tokio::select! {
                biased;
                () = rested => {}
                () = leasehold_runtime::sleep(self.connection.timeout()) => {}
            }
        }
    }

    /// Changes the state, and starts the task that sees to the stream if one
    /// is needed and none runs.
    fn update<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let (result, start) = self.shared.update(|inner| {
            let result = change(inner);
            let start = !inner.running && inner.state.has_work();
            inner.running |= start;
            (result, start)
        });
        if start {
            // A runtime that is gone drops the task at once, and the task's
            // watch locks the state: so not under the lock.
            let watch = Watch::new(Arc::clone(&self.shared));
            let connection = Arc::clone(&self.connection);
            leasehold_runtime::spawn_on(self.connection.runtime(), stream::run(watch, connection));
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
    Error::unavailable("the runtime that the client was connected in is gone")
}

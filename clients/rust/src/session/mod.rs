//! A session: a client's liveness contract with a daemon, and the locks that
//! it holds.
//!
//! `state.rs`, `hear.rs` and `attachment.rs` decide, without waiting and
//! without a clock; `shared.rs` does what they decided; `stream.rs` is the one
//! task that reads. An acquire goes from the program's task straight into the
//! stream, and its answer from the reading task straight back.

mod acquire;
mod ask;
mod attachment;
mod backoff;
mod grant;
mod hear;
mod pings;
mod shared;
mod state;
mod stream;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

pub(crate) use ask::Wait;
pub(crate) use grant::GrantId;

use self::{
    attachment::out_of_reach,
    grant::not_renewed,
    shared::{Inner, Reply, Shared, Waiter},
    state::Outcome,
};
use crate::{
    Error, Loss, Reason, Risk,
    clock::{self, Moment},
    connection::Connection,
    pb,
};

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
    /// session was told.
    pub(crate) fn deadline(&self, grant: GrantId) -> Moment {
        let inner = self.shared.lock();
        inner
            .state
            .grant(grant)
            .map_or(Moment::from_boot(Duration::ZERO), |grant| grant.validity.deadline())
    }

    /// Whether the grant is lost, by both clocks and all that was heard. A
    /// loss that was seen once is never taken back.
    pub(crate) fn loss(&self, id: GrantId) -> Option<Loss> {
        self.shared.update(|inner| {
            let Some(grant) = inner.state.grant(id) else {
                return Some(Loss {
                    reason: Reason::UnknownHandle,
                    message: "the lock was given back".to_owned(),
                });
            };
            if let Some(loss) = grant.loss() {
                return Some(loss.clone());
            }
            let validity = grant.validity;
            let leapt = match inner.state.info() {
                Some(info) => validity.sent.leap() > info.ttl,
                None => true,
            };
            if !leapt && !validity.deadline().has_passed() {
                return None;
            }
            inner.state.lose(id, not_renewed());
            Some(not_renewed())
        })
    }

    /// The latest warning, and its number.
    pub(crate) fn risk(&self, id: GrantId) -> Option<(u64, Risk)> {
        self.shared.lock().state.grant(id)?.risk.clone()
    }

    /// One guard of the grant is gone.
    pub(crate) fn let_go(&self, grant: GrantId) {
        self.shared.update(|inner| {
            if inner.let_go(grant).is_some() {
                self.see_to_stream(inner);
            }
        });
    }

    /// The same, and waits until the daemon has confirmed it if this was the
    /// last guard.
    pub(crate) async fn release(&self, grant: GrantId) -> Result<(), Error> {
        let released = self.shared.update(|inner| {
            let ticket = inner.let_go(grant)?;
            let (reply, released) = oneshot::channel();
            inner.waiters.insert(ticket, Waiter { reply, progress: None });
            self.see_to_stream(inner);
            Some(released)
        });
        let Some(released) = released else { return Ok(()) };
        let limit = self.connection.timeout();
        let reply = tokio::select! {
            biased;
            reply = released => reply,
            () = clock::sleep(limit) => {
                let trouble = self.shared.lock().state.trouble().map(out_of_reach);
                return Err(Error::unavailable(format!(
                    "the release was not confirmed within {limit:?} ({}); it is tried again \
                     while the program runs, and the lock is free at the latest when the \
                     session's ttl has passed",
                    trouble.as_deref().unwrap_or("the daemon has not answered"),
                )));
            }
        };
        match reply {
            Ok(Reply::Other(Outcome::Failed(error))) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => Err(runtime_gone()),
        }
    }

    /// Ends the session, and waits until the daemon has heard of it, though
    /// not for long.
    pub(crate) async fn close(&self) {
        let rested = self.shared.rested.notified();
        let running = self.shared.update(|inner| {
            inner.state.close();
            inner.running
        });
        if running {
            tokio::select! {
                () = rested => {}
                () = clock::sleep(self.connection.timeout()) => {}
            }
        }
    }

    /// Starts the task that sees to the stream if it does not run.
    fn see_to_stream(&self, inner: &mut Inner) {
        if !inner.running && !inner.state.is_closing() {
            inner.running = true;
            let task = stream::run(Arc::clone(&self.shared), Arc::clone(&self.connection));
            self.connection.runtime().spawn(task);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.update(|inner| inner.state.close());
    }
}

fn runtime_gone() -> Error {
    Error::unavailable("the runtime that the client was connected in is gone")
}

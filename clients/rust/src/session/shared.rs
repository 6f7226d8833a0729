//! A session's state between the program's tasks and the one that reads the
//! stream. What the state decides is done before the lock is given back, so
//! messages enter the stream in the order in which they were decided.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    Profile,
    grant::{Grant, GrantId},
    state::{Action, Outcome, State, Ticket},
};
use crate::{
    Progress,
    connection::Target,
    pb::{self, attach_request::Message},
};
use leasehold_time::Moment;

pub(super) type Outgoing = mpsc::UnboundedSender<pb::AttachRequest>;

/// An outcome, ready for the one who waits for it.
pub(super) enum Reply {
    Granted { grant: GrantId, token: u64, bell: Arc<Notify> },
    Other(Outcome),
}

/// Somebody who waits for an outcome.
pub(super) struct Waiter {
    pub(super) reply: oneshot::Sender<Reply>,
    pub(super) progress: Option<mpsc::UnboundedSender<Progress>>,
    /// Name of the lock, for an acquire.
    pub(super) lock: Option<String>,
}

/// Wakes the guard of a grant, and logs the grant's warnings and its loss, each
/// once.
struct Bell {
    notify: Arc<Notify>,
    lock: String,
    logged_warnings: u64,
    logged_loss: bool,
}

impl Bell {
    fn log(&mut self, grant: &Grant) {
        let lock = &self.lock;
        if let Some((number, risk)) = &grant.risk
            && self.logged_warnings < *number
        {
            self.logged_warnings = *number;
            let (reason, ends_in, message) = (risk.reason, risk.ends_in, &risk.message);
            tracing::warn!(
                target: "leasehold_client", lock, ?reason, ?ends_in, message, "lock is at risk"
            );
        }
        if let Some(loss) = grant.loss()
            && !self.logged_loss
        {
            self.logged_loss = true;
            let (reason, message) = (loss.reason, &loss.message);
            tracing::warn!(target: "leasehold_client", lock, ?reason, message, "lock is lost");
        }
    }
}

pub(super) struct Shared {
    inner: Mutex<Inner>,
    /// Rings when the task has ended.
    pub(super) rested: Notify,
}

pub(super) struct Inner {
    pub(super) state: State,
    pub(super) waiters: HashMap<Ticket, Waiter>,
    bells: HashMap<GrantId, Bell>,
    /// Into the present stream.
    pub(super) outgoing: Option<Outgoing>,
    /// The daemon that has the session, or was last asked for one.
    pub(super) daemon: Option<Target>,
    /// Time of the last message from that daemon.
    pub(super) last_heard: Option<Moment>,
    /// Whether there is a task that sees to the stream.
    pub(super) running: bool,
}

impl Shared {
    pub(super) fn new(profile: Arc<Profile>) -> Self {
        let inner = Inner {
            state: State::new(profile),
            waiters: HashMap::new(),
            bells: HashMap::new(),
            outgoing: None,
            daemon: None,
            last_heard: None,
            running: false,
        };
        Self { inner: Mutex::new(inner), rested: Notify::new() }
    }

    /// For looking.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For changing: what the state decides is done.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let result = change(&mut inner);
        inner.act();
        result
    }
}

impl Inner {
    /// The guard of a grant is gone.
    pub(super) fn let_go(&mut self, grant: GrantId) -> Option<Ticket> {
        self.bells.remove(&grant);
        self.state.let_go(grant)
    }

    /// Whether the session's daemon has been silent for the session's TTL. Its
    /// grants have passed their deadlines then.
    pub(super) fn is_daemon_gone(&self, now: Moment) -> bool {
        let ttl = self.state.info().map(|session| session.ttl);
        let heard = self.last_heard;
        ttl.zip(heard).is_some_and(|(ttl, heard)| now.since(heard) >= ttl)
    }

    fn act(&mut self) {
        while let Some(action) = self.state.next_action() {
            match action {
                Action::Send(message) => self.send(message),
                Action::Answer(ticket, outcome) => self.answer(ticket, outcome),
                Action::Tell(ticket, progress) => {
                    let teller = self.waiters.get(&ticket).and_then(|w| w.progress.as_ref());
                    if let Some(teller) = teller {
                        // Who does not listen any more has abandoned the ticket.
                        let _ = teller.send(progress);
                    }
                }
                Action::Ring(grant) => {
                    if let Some(bell) = self.bells.get_mut(&grant) {
                        bell.notify.notify_waiters();
                        if let Some(grant) = self.state.grant(grant) {
                            bell.log(grant);
                        }
                    }
                }
            }
        }
    }

    fn send(&self, message: Message) {
        if let Some(outgoing) = &self.outgoing {
            // If the stream has ended, its reader will notice, and what counts
            // is sent again.
            let _ = outgoing.send(pb::AttachRequest { message: Some(message) });
        }
    }

    fn answer(&mut self, ticket: Ticket, outcome: Outcome) {
        // A release in the background has no waiter. A waiter that is being
        // dropped finds the answer in its channel.
        let Some(waiter) = self.waiters.remove(&ticket) else { return };
        let reply = match outcome {
            Outcome::Granted { grant, token } => {
                let notify = Arc::new(Notify::new());
                let bell = Arc::clone(&notify);
                let lock = waiter.lock.unwrap_or_default();
                let ringer = Bell { notify, lock, logged_warnings: 0, logged_loss: false };
                self.bells.insert(grant, ringer);
                Reply::Granted { grant, token, bell }
            }
            other => Reply::Other(other),
        };
        let _ = waiter.reply.send(reply);
    }
}

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
    grant::GrantId,
    state::{Action, Outcome, State, Ticket},
};
use crate::{Progress, pb, pb::attach_request::Message};

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
}

pub(super) struct Shared {
    inner: Mutex<Inner>,
    /// Rings when the task has ended.
    pub(super) rested: Notify,
}

pub(super) struct Inner {
    pub(super) state: State,
    pub(super) waiters: HashMap<Ticket, Waiter>,
    /// Wakes the guards of a grant.
    bells: HashMap<GrantId, Arc<Notify>>,
    /// Into the present stream.
    pub(super) outgoing: Option<Outgoing>,
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
                    if let Some(bell) = self.bells.get(&grant) {
                        bell.notify_waiters();
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
        let reply = match outcome {
            Outcome::Granted { grant, token } => {
                let bell = Arc::clone(self.bells.entry(grant).or_default());
                Reply::Granted { grant, token, bell }
            }
            other => Reply::Other(other),
        };
        // A release in the background has no waiter. A waiter that is being
        // dropped finds the answer in its channel.
        if let Some(waiter) = self.waiters.remove(&ticket) {
            let _ = waiter.reply.send(reply);
        }
    }
}

//! State of a session, shared by the tasks of the program and the stream task.
//! Actions run before the mutex is released, so that messages are sent in the
//! order in which the state machine produced them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    Profile,
    grant::{Grant, GrantId},
    state::{Action, Outcome, State, Ticket},
};
use crate::{
    Progress, Token,
    connection::Target,
    pb::{self, attach_request::Message},
};
use leasehold_time::{HashMap, Moment};

pub(super) type Outgoing = mpsc::UnboundedSender<pb::AttachRequest>;

/// Result of a request, as its caller receives it.
pub(super) enum Reply {
    Granted { grant: GrantId, token: Token, changed: Arc<Notify> },
    Other(Outcome),
}

/// Caller that waits for the result of a request.
pub(super) struct Waiter {
    pub(super) reply: oneshot::Sender<Reply>,
    pub(super) progress: Option<mpsc::UnboundedSender<Progress>>,
    /// Name of the lock, for an acquire.
    pub(super) lock: Option<String>,
}

/// Notifies the guard of a grant, and logs each warning and the loss once.
struct GrantNotifier {
    notify: Arc<Notify>,
    lock: String,
    logged_warnings: u64,
    logged_loss: bool,
}

impl GrantNotifier {
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
    /// Notified when the stream task has ended.
    pub(super) stopped: Notify,
}

pub(super) struct Inner {
    pub(super) state: State,
    pub(super) waiters: HashMap<Ticket, Waiter>,
    notifiers: HashMap<GrantId, GrantNotifier>,
    /// Outgoing half of the current stream.
    pub(super) outgoing: Option<Outgoing>,
    /// Daemon of the session, or of the last attempt to open one.
    pub(super) daemon: Option<Target>,
    /// Time of the last message from that daemon.
    pub(super) last_message_at: Option<Moment>,
    /// True while the stream task exists.
    pub(super) running: bool,
}

impl Shared {
    pub(super) fn new(profile: Arc<Profile>) -> Self {
        let inner = Inner {
            state: State::new(profile),
            waiters: HashMap::default(),
            notifiers: HashMap::default(),
            outgoing: None,
            daemon: None,
            last_message_at: None,
            running: false,
        };
        Self { inner: Mutex::new(inner), stopped: Notify::new() }
    }

    /// Locks the state for reading.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and runs the resulting actions.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let result = change(&mut inner);
        inner.act();
        result
    }
}

impl Inner {
    /// Releases the grant of a dropped guard.
    pub(super) fn drop_user(&mut self, grant: GrantId) -> Option<Ticket> {
        self.notifiers.remove(&grant);
        self.state.drop_user(grant)
    }

    /// Returns whether the daemon has been silent for the session TTL. All grants
    /// of the session are then past their deadlines.
    pub(super) fn is_daemon_gone(&self, now: Moment) -> bool {
        let ttl = self.state.info().map(|session| session.ttl);
        ttl.zip(self.last_message_at).is_some_and(|(ttl, at)| now.since(at) >= ttl)
    }

    fn act(&mut self) {
        while let Some(action) = self.state.next_action() {
            match action {
                Action::Send(message) => self.send(message),
                Action::Answer(ticket, outcome) => self.answer(ticket, outcome),
                Action::Report(ticket, progress) => {
                    let sender = self.waiters.get(&ticket).and_then(|w| w.progress.as_ref());
                    if let Some(sender) = sender {
                        // Fails only if the caller has dropped its future.
                        let _ = sender.send(progress);
                    }
                }
                Action::Notify(grant) => {
                    if let Some(changed) = self.notifiers.get_mut(&grant) {
                        changed.notify.notify_waiters();
                        if let Some(grant) = self.state.grant(grant) {
                            changed.log(grant);
                        }
                    }
                }
            }
        }
    }

    fn send(&self, message: Message) {
        if let Some(outgoing) = &self.outgoing {
            // Fails if the stream has ended. The stream task detects that, and
            // requests are sent again on the next stream.
            let _ = outgoing.send(pb::AttachRequest { message: Some(message) });
        }
    }

    fn answer(&mut self, ticket: Ticket, outcome: Outcome) {
        // A release in the background has no waiter.
        let Some(waiter) = self.waiters.remove(&ticket) else { return };
        let reply = match outcome {
            Outcome::Granted { grant, token } => {
                let notify = Arc::new(Notify::new());
                let changed = Arc::clone(&notify);
                let lock = waiter.lock.unwrap_or_default();
                let notifier =
                    GrantNotifier { notify, lock, logged_warnings: 0, logged_loss: false };
                self.notifiers.insert(grant, notifier);
                Reply::Granted { grant, token, changed }
            }
            other => Reply::Other(other),
        };
        let _ = waiter.reply.send(reply);
    }
}

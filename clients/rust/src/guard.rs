//! A lock that is held.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    Error, Reason, Token, pb,
    session::{GrantId, Session},
};
use leasehold_time::Moment;

/// Nothing wakes a process when its wall clock has run ahead of the other, so
/// that is looked at from time to time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Operator that broke a lock or asked a leader to step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Name, as given in the operator's request, for example `root@vm`.
    pub by: String,
    /// Reason that the operator gave.
    pub reason: String,
}

impl From<pb::BreakInfo> for Operator {
    fn from(info: pb::BreakInfo) -> Self {
        Self { by: info.by, reason: info.reason }
    }
}

/// Why a grant was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why, for programs.
    pub reason: Reason,
    /// Why, for people.
    pub message: String,
    /// Operator that caused the loss, with [`Reason::Broken`] and
    /// [`Reason::StepDown`], if known.
    pub operator: Option<Operator>,
}

impl Loss {
    /// A loss that no operator caused.
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), operator: None }
    }

    pub(crate) fn of(self, lock: &str) -> Error {
        Error::Lost { lock: lock.to_owned(), reason: self.reason, message: self.message }
    }
}

/// A warning: the grant still stands, but may be lost soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Risk {
    /// Why, for programs.
    pub reason: Reason,
    /// Why, for people.
    pub message: String,
    /// The grant will end this long after the warning unless things improve.
    pub ends_in: Duration,
    /// Operator that asked the leader to step down, with [`Reason::StepDown`].
    pub operator: Option<Operator>,
}

impl Risk {
    /// Whether the end is planned: an operator asks the leader to step down, or
    /// the daemon is stopping. Finish what is under way and let go.
    #[must_use]
    pub const fn is_step_down_request(&self) -> bool {
        matches!(self.reason, Reason::StepDown | Reason::ShuttingDown)
    }
}

/// A lock that is held. Dropping it gives the lock back in the background;
/// [`release`](Self::release) also waits until the daemon has confirmed that.
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct Guard {
    pub(crate) session: Arc<Session>,
    pub(crate) grant: GrantId,
    lock: pb::LockRef,
    token: Token,
    /// Rings when there is news of the grant.
    bell: Arc<Notify>,
    /// The number of the last warning that was handed out.
    warned: AtomicU64,
    let_go: bool,
}

impl Guard {
    pub(crate) fn new(
        session: Arc<Session>,
        grant: GrantId,
        lock: pb::LockRef,
        token: Token,
        bell: Arc<Notify>,
    ) -> Self {
        Self { session, grant, lock, token, bell, warned: AtomicU64::new(0), let_go: false }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lock.name
    }

    /// The namespace that the name belongs to.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.lock.namespace
    }

    /// Greater than the token of every earlier grant of this lock. Hand it to
    /// the guarded resource, which refuses one that is lower than the greatest
    /// that it has seen.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Until when the daemon keeps the lock from others, as far as is known
    /// now. It moves on with every keep-alive that is answered, until the
    /// grant is lost. What the lock protects must have stopped by then.
    ///
    /// It has passed as soon as the lock may be somebody else's: also when the
    /// session was closed, when the stream of a fenced session ended, and when
    /// the wall clock shows that this machine was frozen for too long.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.session.deadline(self.grant)
    }

    /// Returns the time until the [deadline](Self::deadline); zero once it has
    /// passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining()
    }

    /// Whether the grant stands at this moment, by this machine's clock. Once
    /// false, always false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.loss().is_none()
    }

    /// Waits until the grant is lost: because the daemon says so, or because
    /// its deadline has passed on this machine's clock, even if the daemon and
    /// the network are gone.
    ///
    /// After word from the daemon, [`deadline`](Self::deadline) is still
    /// ahead as a rule: stop until then, and drop the guard to tell the daemon
    /// that you have.
    ///
    /// Cancel-safe, and may be called many times, also by several tasks.
    pub async fn lost(&self) -> Loss {
        loop {
            // Made before the look, so that no news in between is missed.
            let news = self.bell.notified();
            if let Some(loss) = self.loss() {
                return loss;
            }
            let look = self.deadline().min(Moment::now() + LOOK_EVERY);
            tokio::select! {
                biased;
                () = news => {}
                () = leasehold_runtime::sleep_until(look) => {}
            }
        }
    }

    /// Waits for the next warning: the daemon is stopping, or could not renew
    /// its lease of late. A loss is not a warning: wait for
    /// [`lost`](Self::lost) too.
    ///
    /// Cancel-safe. Of several warnings since the last call, only the latest
    /// is told; of several tasks that wait, one is.
    pub async fn at_risk(&self) -> Risk {
        loop {
            let news = self.bell.notified();
            if let Some((number, risk)) = self.session.risk(self.grant)
                && self.warned.fetch_max(number, Ordering::AcqRel) < number
            {
                return risk;
            }
            news.await;
        }
    }

    /// Gives the lock back, and waits until the daemon has confirmed it.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost before: what was done under it may
    /// not have been protected. [`Error::Unavailable`] if the daemon did not
    /// confirm the release in time, or could not do it now; it is tried again
    /// in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        if let Some(loss) = self.loss() {
            return Err(loss.of(self.name()));
        }
        self.let_go = true;
        self.session.release(self.grant).await
    }

    /// The same lock, for those who see to it besides the guard.
    pub(crate) fn grant(&self) -> (&Arc<Session>, GrantId) {
        (&self.session, self.grant)
    }

    /// The latest warning.
    pub(crate) fn risk(&self) -> Option<Risk> {
        self.session.risk(self.grant).map(|(_, risk)| risk)
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.session.loss(self.grant)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.let_go {
            self.session.let_go(self.grant);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("namespace", &self.namespace())
            .field("name", &self.name())
            .field("token", &self.token)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

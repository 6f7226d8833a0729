//! Guard of a held lock.

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
    trace,
};
use leasehold_time::Moment;

/// Interval of clock checks. No timer fires on a jump of the wall clock, so the
/// clocks are compared periodically.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

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

/// Loss of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Machine-readable reason.
    pub reason: Reason,
    /// Human-readable message.
    pub message: String,
    /// Operator that caused the loss, with [`Reason::Broken`] and
    /// [`Reason::StepDown`], if known.
    pub operator: Option<Operator>,
}

impl Loss {
    /// Creates a loss that no operator caused.
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), operator: None }
    }

    pub(crate) fn into_error(self, lock: &str) -> Error {
        Error::Lost { lock: lock.to_owned(), reason: self.reason, message: self.message }
    }
}

/// Warning: the grant is still active, but may be lost soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Risk {
    /// Machine-readable reason.
    pub reason: Reason,
    /// Human-readable message.
    pub message: String,
    /// Time from the warning to the end of the grant, unless the cause of the
    /// warning is resolved before.
    pub ends_in: Duration,
    /// Operator that asked the leader to step down, with [`Reason::StepDown`].
    pub operator: Option<Operator>,
}

impl Risk {
    /// Returns whether the end is planned: an operator asked the leader to step
    /// down, or the daemon is shutting down. Finish the current work and release
    /// the lock.
    #[must_use]
    pub const fn is_step_down_request(&self) -> bool {
        matches!(self.reason, Reason::StepDown | Reason::ShuttingDown)
    }
}

/// Guard of a held lock. Dropping it releases the lock in the background;
/// [`release`](Self::release) also waits for the confirmation of the daemon.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    pub(crate) session: Arc<Session>,
    pub(crate) grant: GrantId,
    lock: pb::LockRef,
    token: Token,
    /// Notified when the grant has a new warning or loss, or when its loss may
    /// come earlier.
    changed: Arc<Notify>,
    /// Number of the last returned warning.
    last_warning: AtomicU64,
    released: bool,
}

impl Guard {
    pub(crate) fn new(
        session: Arc<Session>,
        grant: GrantId,
        lock: pb::LockRef,
        token: Token,
        changed: Arc<Notify>,
    ) -> Self {
        Self {
            session,
            grant,
            lock,
            token,
            changed,
            last_warning: AtomicU64::new(0),
            released: false,
        }
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lock.name
    }

    /// Returns the namespace of the lock.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.lock.namespace
    }

    /// Returns the fencing token, which is higher than the tokens of all earlier
    /// grants of this lock. Pass it to the protected resource, which refuses a
    /// token lower than the highest it has seen.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Returns the deadline: the instant until which the daemon grants the lock
    /// to no other acquire. All work that the lock protects must stop before it.
    ///
    /// Each keep-alive response extends the deadline, until the grant is lost.
    /// The deadline has passed as soon as another acquire may hold the lock. This
    /// includes a closed session, an ended stream of a fenced session, and a wall
    /// clock that shows a pause longer than the validity.
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

    /// Returns whether the grant is active now, by the clocks of this machine.
    /// Once false, it stays false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.loss().is_none()
    }

    /// Waits until the grant is lost: the daemon sent a notification, or the
    /// deadline has passed on the clocks of this machine. The latter does not
    /// require the daemon or the network.
    ///
    /// After a notification, the [`deadline`](Self::deadline) is usually still in
    /// the future. Stop the work before it, and then drop the guard, so that the
    /// daemon can grant the lock to the next waiter.
    ///
    /// # Cancel safety
    /// Cancel-safe. Several tasks may wait at the same time, and each of them
    /// receives the loss.
    pub async fn lost(&self) -> Loss {
        loop {
            // Created before the check, so that no change in between is missed.
            let changed = self.changed.notified();
            if let Some(loss) = self.loss() {
                return loss;
            }
            let next_check = self.deadline().min(Moment::now() + CLOCK_CHECK_INTERVAL);
            tokio::select! {
                biased;
                () = changed => {}
                () = leasehold_runtime::sleep_until(next_check) => {}
            }
        }
    }

    /// Waits for the next warning: an operator asked the leader to step down, the
    /// daemon is shutting down, or its lease renewals are failing. A loss is not
    /// a warning; also wait for [`lost`](Self::lost).
    ///
    /// Returns only the latest warning since the last call. If several tasks
    /// wait, one of them receives it.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn at_risk(&self) -> Risk {
        loop {
            let changed = self.changed.notified();
            if let Some((number, risk)) = self.session.risk(self.grant)
                && self.last_warning.fetch_max(number, Ordering::AcqRel) < number
            {
                return risk;
            }
            changed.await;
        }
    }

    /// Releases the lock, and waits until the daemon has confirmed the release.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was already lost: the preceding work may not
    /// have been protected. [`Error::Unavailable`] if the daemon did not confirm
    /// the release within the connect timeout, or could not perform it now; the
    /// release is retried in the background.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        if let Some(loss) = self.loss() {
            return Err(loss.into_error(self.name()));
        }
        self.released = true;
        let span = trace::release_span(&self.lock, self.token);
        let released = self.session.release(self.grant).await;
        trace::record_outcome(&span, released.as_ref().map(|()| None));
        released
    }

    /// Runs `work` until it returns or the grant is lost. Returns the loss if both have
    /// happened.
    pub(crate) async fn until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Loss> {
        tokio::select! {
            biased;
            loss = self.lost() => Err(loss),
            done = work => self.loss().map_or(Ok(done), Err),
        }
    }

    /// Returns the session and the grant.
    pub(crate) fn grant(&self) -> (&Arc<Session>, GrantId) {
        (&self.session, self.grant)
    }

    /// Returns the latest warning.
    pub(crate) fn risk(&self) -> Option<Risk> {
        self.session.risk(self.grant).map(|(_, risk)| risk)
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.session.loss(self.grant)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.session.drop_user(self.grant);
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

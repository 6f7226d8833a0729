//! Leadership of an election.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::progress::ProgressMonitor;
use crate::{Error, Guard, Loss, Reason, Risk, value::Value};

/// Leadership of an election: a [`Guard`] that can also proclaim a value.
/// Dropping it resigns in the background; [`resign`](Self::resign) also waits
/// until the daemon has confirmed that.
///
/// Name, [token](Guard::token), [deadline](Guard::deadline), [loss](Guard::lost)
/// and [warnings](Guard::at_risk) are the guard's, which it dereferences to.
/// After the warnings [`Reason::StepDown`] (an operator asks the leader to step
/// down) and [`Reason::ShuttingDown`] (the daemon is shutting down), finish the
/// current work and [`resign`](Self::resign). In the work of
/// [`run_as_leader`](crate::Election::run_as_leader),
/// [`step_down`](Self::step_down) instead. After [`Reason::StoreUnavailable`], no
/// action is required; the leadership may be lost.
///
/// **An election can't stop a paused leader.** Pass the token to the resources to
/// which the leader writes, and let them refuse a token lower than the highest
/// they have seen.
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    guard: Guard,
    monitor: OnceLock<ProgressMonitor>,
}

impl Leadership {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, monitor: OnceLock::new() }
    }

    /// Publishes another value under the same token, and waits until observers at
    /// all daemons can read it. After a disconnect, the value is sent again. The
    /// call ends no later than the leadership.
    ///
    /// # Errors
    /// - [`Error::Invalid`]: the value has more than 4,096 bytes. Nothing was sent.
    /// - [`Error::Lost`]: the leadership is lost.
    /// - [`Error::Unavailable`]: the daemon can't store the value now. The previous
    ///   value stays published.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the proclaim: the value may or may not
    /// be published.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        let value = Value::new(value)?;
        let (session, grant) = self.guard.grant();
        tokio::select! {
            biased;
            loss = self.lost() => Err(loss.into_error(self.name())),
            published = session.proclaim(grant, self.name(), value) => published,
        }
    }

    /// Resigns, and waits until the daemon has confirmed. The next candidate leads
    /// at once.
    ///
    /// # Errors
    /// [`Error::Lost`] if the leadership was already lost: another candidate may
    /// have led since. [`Error::Unavailable`] if the daemon did not confirm within
    /// the connect timeout, or could not release the lock now; the release is
    /// retried in the background.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released in the background.
    pub async fn resign(self) -> Result<(), Error> {
        let Self { guard, monitor } = self;
        drop(monitor);
        guard.release().await
    }

    /// Steps down from within the work of
    /// [`run_as_leader`](crate::Election::run_as_leader), after draining. The work
    /// is dropped at this await point. After a delay that lets another candidate
    /// lead, the election campaigns again.
    ///
    /// Outside of `run_as_leader`, returns the loss; the next candidate leads once
    /// this leadership is dropped.
    pub async fn step_down(&self) -> Loss {
        let request = self.guard.risk().filter(Risk::is_step_down_request);
        let reason = request.as_ref().map_or(Reason::SteppedDown, |risk| risk.reason);
        let operator = request.and_then(|risk| risk.operator);
        let message = "the leader stepped down".to_owned();
        let (session, grant) = self.guard.grant();
        session.lose(grant, Loss { reason, message, operator });
        // Lets `run_as_leader` receive the loss first, and drop the work here.
        tokio::task::yield_now().await;
        self.lost().await
    }

    /// Requires a call of [`progress`](Self::progress) within each `timeout` from
    /// now on. A leader that misses it is considered stuck: the leadership is
    /// [lost](Guard::lost) with [`Reason::NoProgress`]. It is released when this
    /// value is dropped, and no later than at its [deadline](Guard::deadline).
    ///
    /// A task monitors the progress. On a single-threaded runtime, work that blocks
    /// the thread stops both this task and the keep-alives, so that the leadership
    /// is lost when the session TTL has elapsed.
    ///
    /// A later call sets another timeout, and counts as progress.
    pub fn expect_progress(&self, timeout: Duration) {
        let (session, grant) = self.guard.grant();
        let monitor = self
            .monitor
            .get_or_init(|| ProgressMonitor::start(Arc::clone(session), grant, timeout));
        monitor.set_timeout(timeout);
    }

    /// Reports progress. Has no effect before
    /// [`expect_progress`](Self::expect_progress) or after a loss.
    pub fn progress(&self) {
        if let Some(monitor) = self.monitor.get() {
            monitor.progress();
        }
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("namespace", &self.namespace())
            .field("name", &self.name())
            .field("token", &self.token())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

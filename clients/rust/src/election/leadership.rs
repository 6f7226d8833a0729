//! Leading an election.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::progress::Vigil;
use crate::{Error, Guard, Loss, Reason, Risk, value::Value};

/// Leadership of an election: a [`Guard`] that can also proclaim a value.
/// Dropping it resigns in the background; [`resign`](Self::resign) also waits
/// until the daemon has confirmed that.
///
/// Name, [token](Guard::token), [deadline](Guard::deadline), [loss](Guard::lost)
/// and [warnings](Guard::at_risk) are the guard's, which it dereferences to.
/// After the warnings [`Reason::StepDown`] (an operator asks the leader to step
/// down) and [`Reason::ShuttingDown`] (the daemon is stopping), finish what is
/// in progress and [`resign`](Self::resign) or, in the work of
/// [`run_as_leader`](crate::Election::run_as_leader),
/// [`step_down`](Self::step_down). [`Reason::StoreUnavailable`] says only that
/// the leadership may be lost.
///
/// **A paused leader may still act**: pass the token to the resources that a
/// leader writes to, and let them refuse one that is lower than the highest
/// they have seen.
#[must_use = "it is given up as soon as it is dropped"]
pub struct Leadership {
    guard: Guard,
    vigil: OnceLock<Vigil>,
}

impl Leadership {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, vigil: OnceLock::new() }
    }

    /// Shows another value, under the same token, and waits until observers at
    /// all daemons can see it. If the connection breaks meanwhile, it is sent
    /// again; it ends at the latest with the leadership.
    ///
    /// Dropping the future does not take the value back: it may or may not be
    /// shown.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value has more than 4,096 bytes: nothing is
    /// sent then. [`Error::Lost`] if this does not lead any more.
    /// [`Error::Unavailable`] if the daemon can't store the value now; the
    /// value before is still shown.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        let value = Value::new(value)?;
        let (session, grant) = self.guard.grant();
        tokio::select! {
            biased;
            loss = self.lost() => Err(loss.of(self.name())),
            shown = session.proclaim(grant, self.name(), value) => shown,
        }
    }

    /// Stops leading, and waits until the daemon has confirmed it. The next
    /// candidate leads at once.
    ///
    /// # Errors
    /// [`Error::Lost`] if the leadership was lost before: somebody else may
    /// have led since. [`Error::Unavailable`] if the daemon did not confirm it
    /// in time, or could not do it now; it is tried again in the background.
    pub async fn resign(self) -> Result<(), Error> {
        let Self { guard, vigil } = self;
        drop(vigil);
        guard.release().await
    }

    /// Gives up leading from within the work of
    /// [`run_as_leader`](crate::Election::run_as_leader), after draining: the
    /// work is dropped here, others get their turn, and then it campaigns
    /// again.
    ///
    /// Elsewhere it comes back: the leadership is lost, and others lead once it
    /// is dropped.
    pub async fn step_down(&self) -> Loss {
        let asked = self.guard.risk().filter(Risk::is_step_down_request);
        let reason = asked.as_ref().map_or(Reason::SteppedDown, |risk| risk.reason);
        let operator = asked.and_then(|risk| risk.operator);
        let message = "the leader handed over".to_owned();
        let (session, grant) = self.guard.grant();
        session.lose(grant, Loss { reason, message, operator });
        // Whoever waits for the loss comes first, and drops the work.
        tokio::task::yield_now().await;
        self.lost().await
    }

    /// From now on, [`progress`](Self::progress) must be called at least this
    /// often. A leader that falls silent is taken for stuck: it is
    /// [lost](Guard::lost) with [`Reason::NoProgress`], and given up as soon as
    /// this is dropped, at the latest at its [deadline](Guard::deadline).
    ///
    /// The watch is kept by a task. On a runtime with one thread, work that
    /// blocks the thread stops that task and the keep-alives alike, so that it
    /// loses the leadership when the session's ttl has passed.
    ///
    /// A later call sets another length, and counts as progress.
    pub fn expect_progress(&self, within: Duration) {
        let (session, grant) = self.guard.grant();
        let vigil = self.vigil.get_or_init(|| Vigil::begin(Arc::clone(session), grant, within));
        vigil.expect_within(within);
    }

    /// The work is not stuck. Of no effect before
    /// [`expect_progress`](Self::expect_progress), and too late after a loss.
    pub fn progress(&self) {
        if let Some(vigil) = self.vigil.get() {
            vigil.progress();
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

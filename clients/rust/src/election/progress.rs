//! Detection of a stuck leader.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::AbortHandle};

use crate::{
    Loss, Reason,
    session::{GrantId, Session},
};
use leasehold_time::Moment;

/// Monitor of the progress of a leader. Dropping it stops its task.
pub(super) struct ProgressMonitor {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    session: Arc<Session>,
    grant: GrantId,
    deadline: Mutex<ProgressDeadline>,
    /// Notified when the deadline may be earlier than before.
    rescheduled: Notify,
}

/// Time of the last progress, and the maximum time until the next one.
#[derive(Clone, Copy, Debug)]
struct ProgressDeadline {
    last: Moment,
    timeout: Duration,
}

impl ProgressDeadline {
    fn at(&self) -> Moment {
        self.last + self.timeout
    }

    /// Records progress. Returns false after the deadline; late progress is
    /// ignored, even if the monitor has not detected the timeout yet.
    fn record(&mut self, now: Moment) -> bool {
        let in_time = now < self.at();
        if in_time {
            self.last = now;
        }
        in_time
    }
}

impl ProgressMonitor {
    pub(super) fn start(session: Arc<Session>, grant: GrantId, timeout: Duration) -> Self {
        let deadline = Mutex::new(ProgressDeadline { last: Moment::now(), timeout });
        let shared = Arc::new(Shared { session, grant, deadline, rescheduled: Notify::new() });
        let task = shared.session.connection().runtime().spawn(monitor(Arc::clone(&shared)));
        Self { shared, task: task.abort_handle() }
    }

    pub(super) fn progress(&self) {
        self.shared.record(None);
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        self.shared.record(Some(timeout));
        self.shared.rescheduled.notify_one();
    }
}

impl Drop for ProgressMonitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn record(&self, timeout: Option<Duration>) {
        let in_time = {
            let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
            let in_time = deadline.record(Moment::now());
            deadline.timeout = timeout.filter(|_| in_time).unwrap_or(deadline.timeout);
            in_time
        };
        if !in_time {
            self.lose();
        }
    }

    fn deadline(&self) -> ProgressDeadline {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self) {
        let message = format!("the leader reported no progress for {:?}", self.deadline().timeout);
        self.session.lose(self.grant, Loss::new(Reason::NoProgress, message));
    }
}

async fn monitor(shared: Arc<Shared>) {
    loop {
        let deadline = shared.deadline().at();
        if deadline.has_passed() {
            break;
        }
        tokio::select! {
            biased;
            () = leasehold_runtime::sleep_until(deadline) => {}
            () = shared.rescheduled.notified() => {}
        }
    }
    shared.lose();
    // The session sends keep-alives, so that the daemon holds the lock until it is
    // released. The stuck work may still use it until the deadline.
    leasehold_runtime::sleep_until(shared.session.deadline(shared.grant)).await;
    shared.session.release_lost(shared.grant);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_progress_is_ignored() {
        let start = Moment::from_boot(Duration::from_secs(1000));
        let second = Duration::from_secs(1);
        let mut deadline = ProgressDeadline { last: start, timeout: second * 2 };
        assert!(deadline.record(start + second));
        assert_eq!(deadline.at(), start + second * 3);
        assert!(!deadline.record(start + second * 3));
        assert_eq!(deadline.at(), start + second * 3);
        assert!(!deadline.record(start + second * 4), "a missed deadline is not reset");
    }
}

//! A watch over a leader that may get stuck.

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

/// Ends when it is dropped.
pub(super) struct Vigil {
    watched: Arc<Watched>,
    task: AbortHandle,
}

struct Watched {
    session: Arc<Session>,
    grant: GrantId,
    pulse: Mutex<Pulse>,
    /// Rings when it may be due earlier than before.
    hurry: Notify,
}

/// When the work last showed progress, and how often it is to.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    last: Moment,
    within: Duration,
}

impl Pulse {
    fn due(&self) -> Moment {
        self.last + self.within
    }

    /// Progress that comes too late does not count: whether the loss was
    /// noticed before must not matter.
    fn beat(&mut self, now: Moment) -> bool {
        let in_time = now < self.due();
        if in_time {
            self.last = now;
        }
        in_time
    }
}

impl Vigil {
    pub(super) fn begin(session: Arc<Session>, grant: GrantId, within: Duration) -> Self {
        let pulse = Mutex::new(Pulse { last: Moment::now(), within });
        let watched = Arc::new(Watched { session, grant, pulse, hurry: Notify::new() });
        let task = watched.session.connection().runtime().spawn(watch(Arc::clone(&watched)));
        Self { watched, task: task.abort_handle() }
    }

    pub(super) fn progress(&self) {
        self.watched.beat(None);
    }

    pub(super) fn expect_within(&self, within: Duration) {
        self.watched.beat(Some(within));
        self.watched.hurry.notify_one();
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    fn beat(&self, within: Option<Duration>) {
        let in_time = {
            let mut pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
            let in_time = pulse.beat(Moment::now());
            pulse.within = within.filter(|_| in_time).unwrap_or(pulse.within);
            in_time
        };
        if !in_time {
            self.lose();
        }
    }

    fn pulse(&self) -> Pulse {
        *self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self) {
        let message = format!("the work has shown no progress for {:?}", self.pulse().within);
        self.session.lose(self.grant, Loss::new(Reason::NoProgress, message));
    }
}

async fn watch(watched: Arc<Watched>) {
    loop {
        let due = watched.pulse().due();
        if due.has_passed() {
            break;
        }
        tokio::select! {
            biased;
            () = leasehold_runtime::sleep_until(due) => {}
            () = watched.hurry.notified() => {}
        }
    }
    watched.lose();
    // The daemon keeps others out for as long as it hears of the session. The
    // work may go on until the deadline, and not longer.
    leasehold_runtime::sleep_until(watched.session.deadline(watched.grant)).await;
    watched.session.give_up(watched.grant);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_that_comes_too_late_does_not_count() {
        let start = Moment::from_boot(Duration::from_secs(1000));
        let second = Duration::from_secs(1);
        let mut pulse = Pulse { last: start, within: second * 2 };
        assert!(pulse.beat(start + second));
        assert_eq!(pulse.due(), start + second * 3);
        assert!(!pulse.beat(start + second * 3));
        assert_eq!(pulse.due(), start + second * 3);
        assert!(!pulse.beat(start + second * 4), "late once is late for ever");
    }
}

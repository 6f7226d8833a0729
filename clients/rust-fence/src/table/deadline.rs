//! Overall timeout of one operation of the caller.

use std::{future::Future, time::Duration};

use leasehold_time::Moment;

use crate::retry::Retries;

/// End of an operation. All calls and delays of the operation share it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    moment: Moment,
    timeout: Duration,
}

impl Deadline {
    /// Creates the deadline of an operation that begins now.
    pub(super) fn after(timeout: Duration) -> Self {
        Self { moment: Moment::now() + timeout, timeout }
    }

    /// Returns the timeout of the whole operation.
    pub(super) const fn timeout(self) -> Duration {
        self.timeout
    }

    pub(super) fn has_passed(self) -> bool {
        self.moment.has_passed()
    }

    /// Waits for a future. Returns `None` if the deadline passes first.
    pub(super) async fn bound<T>(self, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = awaited => Some(done),
            () = leasehold_runtime::sleep_until(self.moment) => None,
        }
    }

    /// Waits until the next attempt is due. Returns false if no attempts are left or
    /// the deadline is earlier.
    pub(super) async fn next_attempt(self, retries: &mut Retries, at_least: Duration) -> bool {
        at_least < self.moment.remaining()
            && self.bound(retries.next_attempt(at_least)).await == Some(true)
    }
}

//! How long one operation of the user's may take in all.

use std::{future::Future, time::Duration};

use leasehold_time::Moment;

use crate::retry::Retries;

/// When an operation ends, whatever has become of it by then. All calls and
/// pauses that it is made of share it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    moment: Moment,
    limit: Duration,
}

impl Deadline {
    /// For what begins now.
    pub(super) fn after(limit: Duration) -> Self {
        Self { moment: Moment::now() + limit, limit }
    }

    /// How long the operation may take, from its beginning.
    pub(super) const fn limit(self) -> Duration {
        self.limit
    }

    pub(super) fn has_passed(self) -> bool {
        self.moment.has_passed()
    }

    /// Waits for something, but no longer than until then.
    pub(super) async fn bound<T>(self, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = awaited => Some(done),
            () = leasehold_runtime::sleep_until(self.moment) => None,
        }
    }

    /// Waits for the next attempt; false if there is none in time.
    pub(super) async fn again(self, retries: &mut Retries, at_least: Duration) -> bool {
        at_least < self.moment.remaining()
            && self.bound(retries.again(at_least)).await == Some(true)
    }
}

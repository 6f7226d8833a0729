//! How often and how soon something is tried again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Who is asked to wait for longer is told so rather than kept waiting.
const LONGEST: Duration = Duration::from_secs(5);

/// A bounded number of further attempts, ever later, with jitter.
pub(super) struct Patience(ExponentialBackoff);

impl Patience {
    /// For a service that may come back.
    pub(super) fn with_service() -> Self {
        Self::new(Duration::from_millis(100), 5)
    }

    /// For others who change the same row.
    pub(super) fn with_others() -> Self {
        Self::new(Duration::from_millis(5), 40)
    }

    fn new(shortest: Duration, times: usize) -> Self {
        let builder = ExponentialBuilder::new().with_min_delay(shortest).with_max_times(times);
        Self(builder.with_max_delay(Duration::from_secs(1)).with_jitter().build())
    }

    /// Waits for the next attempt; false if it was the last, or if it would
    /// take too long.
    pub(super) async fn again(&mut self, at_least: Duration) -> bool {
        match self.0.next() {
            Some(pause) if at_least <= LONGEST => {
                leasehold_runtime::sleep(pause.max(at_least)).await;
                true
            }
            _ => false,
        }
    }
}

//! Number and delays of further attempts.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Maximum delay. If the service asks for a longer one, the caller gets the
/// error instead.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// A bounded number of further attempts, ever later, with jitter.
pub(crate) struct Retries(ExponentialBackoff);

impl Retries {
    /// Attempts at a service that may recover.
    pub(crate) fn for_service() -> Self {
        Self::new(Duration::from_millis(100), 5)
    }

    /// Attempts against other writers of the same row or blob.
    pub(crate) fn for_contention() -> Self {
        Self::new(Duration::from_millis(5), 40)
    }

    fn new(shortest: Duration, times: usize) -> Self {
        let builder = ExponentialBuilder::new().with_min_delay(shortest).with_max_times(times);
        Self(builder.with_max_delay(Duration::from_secs(1)).with_jitter().build())
    }

    /// Waits for the next attempt; false if it was the last, or if it would
    /// take too long.
    pub(crate) async fn again(&mut self, at_least: Duration) -> bool {
        match self.0.next() {
            Some(pause) if at_least <= MAX_DELAY => {
                leasehold_runtime::sleep(pause.max(at_least)).await;
                true
            }
            _ => false,
        }
    }
}

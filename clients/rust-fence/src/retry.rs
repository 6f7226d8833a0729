//! Number and delays of retries.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Maximum delay before a retry. If the service asks for a longer delay, the
/// caller receives the error instead.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Bounded number of retries with exponential backoff and jitter.
pub(crate) struct Retries(ExponentialBackoff);

impl Retries {
    /// Creates the retries after a transient fault of the service: 5.
    pub(crate) fn for_service() -> Self {
        Self::new(Duration::from_millis(100), 5)
    }

    /// Creates the retries after a concurrent write of the same row or blob: 40.
    pub(crate) fn for_contention() -> Self {
        Self::new(Duration::from_millis(5), 40)
    }

    fn new(min_delay: Duration, times: usize) -> Self {
        let builder = ExponentialBuilder::new().with_min_delay(min_delay).with_max_times(times);
        Self(builder.with_max_delay(Duration::from_secs(1)).with_jitter().build())
    }

    /// Waits until the next attempt is due. Returns false if no attempts are left
    /// or the service asks for a delay over 5 s.
    pub(crate) async fn next_attempt(&mut self, at_least: Duration) -> bool {
        match self.0.next() {
            Some(delay) if at_least <= MAX_DELAY => {
                leasehold_runtime::sleep(delay.max(at_least)).await;
                true
            }
            _ => false,
        }
    }
}

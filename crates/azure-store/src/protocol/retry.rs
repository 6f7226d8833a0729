//! Retries of one step of the protocol, with growing delays.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::AzureStore;
use leasehold_runtime::sleep;
use leasehold_time::Moment;

/// Delays between the attempts of one step: growing, with jitter, and limited in
/// number.
pub(crate) struct Retries(ExponentialBackoff);

impl Retries {
    /// Waits before the next attempt. Returns false at once if that attempt would
    /// begin after `until`, or if there were enough.
    pub(crate) async fn wait(&mut self, until: Moment) -> bool {
        match self.0.next().filter(|wait| Moment::now() + *wait < until) {
            Some(wait) => {
                sleep(wait).await;
                true
            }
            None => false,
        }
    }
}

impl AzureStore {
    pub(crate) fn retries(&self) -> Retries {
        let retries = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(2))
            .with_max_times(6)
            .with_jitter()
            .with_jitter_seed(self.shared.entropy().bits() as u64);
        Retries(retries.build())
    }
}

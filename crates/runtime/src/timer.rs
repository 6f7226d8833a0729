//! Timers that count through suspend.

use std::time::Duration;

use leasehold_time::Moment;

/// Maximum duration of one timer of the async runtime, which does not count
/// through suspend. A longer wait is split, so that it ends at most this late
/// after a wake-up.
const MAX_SLEEP_SLICE: Duration = Duration::from_secs(1);

/// Waits until `moment` has been reached. Time in suspend counts.
pub async fn sleep_until(moment: Moment) {
    loop {
        let remaining = moment.remaining();
        if remaining.is_zero() {
            return;
        }
        sleep(remaining.min(MAX_SLEEP_SLICE)).await;
    }
}

/// Waits until `moment`; never returns if there is none.
pub async fn sleep_until_any(moment: Option<Moment>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Waits for `duration`. Time in suspend does not count.
#[allow(clippy::disallowed_methods, reason = "the only permitted use")]
pub async fn sleep(duration: Duration) {
    #[cfg(feature = "simulation")]
    if let Some(sleep) = leasehold_time::simulation::ask(|world| world.sleep(duration)).flatten() {
        return sleep.await;
    }
    tokio::time::sleep(duration).await;
}

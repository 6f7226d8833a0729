//! Timers that count through suspend.

use std::time::Duration;

use leasehold_time::Moment;

/// Maximum length of one timer of the async runtime, which does not count
/// through suspend: a longer wait is cut into pieces, so that it ends at most
/// this late after a wake-up.
const MAX_SLEEP_SLICE: Duration = Duration::from_secs(1);

/// Waits until `moment` has been reached, also if the machine sleeps meanwhile.
pub async fn sleep_until(moment: Moment) {
    loop {
        let remaining = moment.remaining();
        if remaining.is_zero() {
            return;
        }
        sleep(remaining.min(MAX_SLEEP_SLICE)).await;
    }
}

/// Waits until `moment`, or for ever if there is none.
pub async fn sleep_until_any(moment: Option<Moment>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Waits for this long, not counting suspend.
#[allow(clippy::disallowed_methods, reason = "the one place that uses it")]
pub async fn sleep(length: Duration) {
    #[cfg(feature = "simulation")]
    if let Some(sleep) = leasehold_time::simulation::ask(|world| world.sleep(length)).flatten() {
        return sleep.await;
    }
    tokio::time::sleep(length).await;
}

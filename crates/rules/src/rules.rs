//! The rules as they hold in the product.

use std::time::Duration;

use leasehold_time::{ClockPair, Moment};

/// Interval of clock checks while a timer is armed.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Safety rule 5: returns how far the wall clock advanced relative to the
/// boot-time clock between two readings of both.
#[must_use]
pub fn clock_jump(earlier: &ClockPair, later: &ClockPair) -> Duration {
    earlier.jump_until(later)
}

/// Safety rule 5: returns how much of a jump that is too small to report is
/// carried into the next measurement, so that small jumps add up.
#[must_use]
pub const fn carried_jump(small: Duration) -> Duration {
    small
}

/// Safety rule 5: returns when a daemon whose earliest timer is due at `due` has to
/// check its clocks again. It does not wait for a distant timer, because a pause
/// must be detected before a wall clock that is set afterwards can hide it.
#[must_use]
pub fn next_clock_check(due: Moment, now: Moment) -> Moment {
    due.min(now + CLOCK_CHECK_INTERVAL)
}

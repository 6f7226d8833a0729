//! The rules as they hold in the product.

use std::time::Duration;

use leasehold_time::ClockPair;

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

//! The rules as a simulation runs them: each as it holds in the product, or as
//! the [`Mutant`] of this thread breaks it. Not part of any other build.

use std::time::Duration;

use leasehold_time::{ClockPair, Moment};

use crate::{
    mutant::{Mutant, is},
    rules,
};

/// 5b: no jump is ever seen.
#[must_use]
pub fn clock_jump(earlier: &ClockPair, later: &ClockPair) -> Duration {
    if is(Mutant::BlindToLeaps) { Duration::ZERO } else { rules::clock_jump(earlier, later) }
}

/// 5d: small jumps are forgotten.
#[must_use]
pub fn carried_jump(small: Duration) -> Duration {
    if is(Mutant::SmallLeapsForgotten) { Duration::ZERO } else { rules::carried_jump(small) }
}

/// 5f: the clocks are checked only when something is due.
#[must_use]
pub fn next_clock_check(due: Moment, now: Moment) -> Moment {
    if is(Mutant::LooksWhenDue) { due } else { rules::next_clock_check(due, now) }
}

//! The rules as a simulation runs them: each as it holds in the product, or as
//! the [`Mutant`] of this thread breaks it. Not part of any other build.

use std::time::Duration;

use leasehold_time::ClockPair;

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

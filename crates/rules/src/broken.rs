//! The rules as a simulation runs them: each as it holds in the product, or as
//! the [`Mutant`] of this thread breaks it. Not part of any other build.

use std::time::Duration;

use leasehold_time::{ClockPair, Moment};

// A function of this module hides the rule with its name.
pub use crate::rules::*;
use crate::{
    mutant::{Mutant, is},
    rules,
};

/// Timeout of a call that never times out.
const ENDLESS: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// 2c, 2f, 2g and 2h: the tokens of a new blob begin at 1, within the second of
/// its creation, at any clock, or without regard to tokens that were seen before.
pub fn next_token(basis: &TokenBasis) -> Result<u64, NoToken> {
    let mut basis = *basis;
    if is(Mutant::AbsurdDate) {
        basis.wall = u64::MAX;
    }
    if is(Mutant::NewForgetsSeen) {
        basis.highest = 0;
    }
    if is(Mutant::SameSecond) && basis.stored == 0 {
        basis.storage_date = basis.storage_date.map(|date| date.saturating_sub(1));
    }
    let token = rules::next_token(&basis)?;
    let begins_at_one = is(Mutant::ForgetfulEpoch) && basis.stored == 0;
    Ok(if begins_at_one { TOKENS_PER_HOLD } else { token })
}

/// 2d: a record that went back is believed.
#[must_use]
pub fn is_regressed(stored: u64, highest: u64) -> bool {
    !is(Mutant::TrustOldRecord) && rules::is_regressed(stored, highest)
}

/// 3a, 3b and 3c: the deadline counts from the answer, or leaves no margin, or no
/// room for drift.
#[must_use]
pub fn lease_deadline(sent: Moment, duration: Duration) -> Moment {
    if is(Mutant::DeadlineFromAnswer) {
        rules::lease_deadline(Moment::now(), duration)
    } else if is(Mutant::DeadlineWithoutMargin) {
        sent + duration
    } else if is(Mutant::NoRoomForDrift) {
        sent + (duration - rules::lease_margin(duration))
    } else {
        rules::lease_deadline(sent, duration)
    }
}

/// 4: no call times out.
#[must_use]
pub fn call_timeout(duration: Duration) -> Duration {
    if is(Mutant::EndlessCall) { ENDLESS } else { rules::call_timeout(duration) }
}

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

/// 7f: a record is identified by its token as well.
#[must_use]
pub fn is_own_record(found: RecordId, written: RecordId) -> bool {
    rules::is_own_record(found, written)
        || (is(Mutant::NonceUnread) && found.token == written.token)
}

/// 9: any lease ID in an answer is accepted.
#[must_use]
pub fn is_own_lease(answered: Option<&str>, lease_id: &str) -> bool {
    is(Mutant::AnyLeaseId) || rules::is_own_lease(answered, lease_id)
}

/// 14b and 14c: a blob is deleted whatever its epoch, or by the storage clock alone.
#[must_use]
pub fn may_collect(blob: &UnusedBlob, min_idle: Duration) -> bool {
    let mut blob = *blob;
    if is(Mutant::CollectAnyEpoch) {
        blob.token = 0;
    }
    if is(Mutant::CollectByOneClock) {
        blob.wall = u64::MAX;
    }
    rules::may_collect(&blob, min_idle)
}

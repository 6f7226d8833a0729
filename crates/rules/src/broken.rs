//! Rules for the simulation: each delegates to the real rule, unless the active
//! [`Mutant`] of this thread breaks it. Not part of any other build.

use std::time::Duration;

use leasehold_time::{ClockPair, Moment};

// A function of this module shadows the rule of the same name.
pub use crate::rules::*;
use crate::{
    mutant::{Mutant, is},
    rules,
};

/// Mutant 3c: no room for drift.
#[must_use]
pub fn session_validity(duration: Duration) -> Duration {
    if is(Mutant::NoRoomForDrift) { duration } else { rules::session_validity(duration) }
}

/// Timeout that no call reaches.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Mutants 2c, 2f, 2g and 2h: the tokens of a new blob begin at 1, or within the
/// second of its creation, or at any storage clock, or ignore tokens seen before.
pub fn next_token(basis: &TokenBasis) -> Result<u64, NoToken> {
    let mut basis = *basis;
    if is(Mutant::AnyDateAccepted) {
        basis.wall = u64::MAX;
    }
    if is(Mutant::NewIgnoresHighest) {
        basis.highest = 0;
    }
    if is(Mutant::SameSecond) && basis.stored == 0 {
        basis.storage_date = basis.storage_date.map(|date| date.saturating_sub(1));
    }
    let token = rules::next_token(&basis)?;
    let begins_at_one = is(Mutant::NewBeginsAtOne) && basis.stored == 0;
    Ok(if begins_at_one { TOKENS_PER_HOLD } else { token })
}

/// Mutant 2d: a regressed record is accepted.
#[must_use]
pub fn is_regressed(stored: u64, highest: u64) -> bool {
    !is(Mutant::RegressedRecordAccepted) && rules::is_regressed(stored, highest)
}

/// Mutants 3a, 3b and 3c: the deadline counts from the answer, or leaves no margin,
/// or no room for drift.
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

/// Mutant 4: no call times out.
#[must_use]
pub fn call_timeout(duration: Duration) -> Duration {
    if is(Mutant::CallWithoutTimeout) { NO_TIMEOUT } else { rules::call_timeout(duration) }
}

/// Mutant 5b: jumps are not detected.
#[must_use]
pub fn clock_jump(earlier: &ClockPair, later: &ClockPair) -> Duration {
    if is(Mutant::JumpsUndetected) { Duration::ZERO } else { rules::clock_jump(earlier, later) }
}

/// Mutant 5d: small jumps are forgotten.
#[must_use]
pub fn carried_jump(small: Duration, age: Duration) -> Duration {
    if is(Mutant::SmallJumpsForgotten) { Duration::ZERO } else { rules::carried_jump(small, age) }
}

/// Mutant 5c: a jump does not shorten the validity of a lease.
#[must_use]
pub fn valid_until(deadline: Moment, jumps: Duration) -> Moment {
    if is(Mutant::JumpForgotten) { deadline } else { rules::valid_until(deadline, jumps) }
}

/// Mutants 5b and 5e: the deadline of a holder ignores clock jumps.
#[must_use]
pub fn holder_deadline(sent: &ClockPair, valid_for: Duration, now: &ClockPair) -> Moment {
    if is(Mutant::HolderIgnoresJumps) || is(Mutant::JumpsUndetected) {
        return sent.at() + valid_for;
    }
    rules::holder_deadline(sent, valid_for, now)
}

/// Mutant 5b: jumps are not detected.
#[must_use]
pub fn is_past_deadline(sent: &ClockPair, valid_for: Duration, now: &ClockPair) -> bool {
    if is(Mutant::JumpsUndetected) {
        return now.at() >= sent.at() + valid_for;
    }
    rules::is_past_deadline(sent, valid_for, now)
}

/// Mutant 5f: the clocks are checked only when a timer is due.
#[must_use]
pub fn next_clock_check(due: Moment, now: Moment) -> Moment {
    if is(Mutant::ClockCheckedWhenDue) { due } else { rules::next_clock_check(due, now) }
}

/// Mutant 5g: the holder is assumed to know the daemon's clock jumps.
#[must_use]
pub fn holder_acts_until(deadline: Moment, valid_until: Moment) -> Moment {
    if is(Mutant::HolderKnowsJumps) {
        deadline.min(valid_until)
    } else {
        rules::holder_acts_until(deadline, valid_until)
    }
}

/// Mutant 6: grants start on any lease.
#[must_use]
pub fn may_grant(now: Moment, valid_until: Moment, is_retired: bool) -> bool {
    is(Mutant::GrantOnExpiredLease) || rules::may_grant(now, valid_until, is_retired)
}

/// Mutant 6: a limit in the past does not limit a grant.
#[must_use]
pub fn grant_limit(limit: Option<Moment>, now: Moment) -> Option<Moment> {
    let limit = rules::grant_limit(limit, now);
    limit.filter(|at| now < *at || !is(Mutant::GrantOnExpiredLease))
}

/// Mutant 7d: a lease without a grant lingers.
#[must_use]
pub fn may_linger(expires: bool, was_granted: bool, is_published: bool) -> bool {
    let was_granted = was_granted || is(Mutant::LingerWithoutGrant);
    rules::may_linger(expires, was_granted, is_published)
}

/// Mutant 7e: the linger period of an unused lease restarts until it has ended.
#[must_use]
pub fn linger_until(lingers_until: Option<Moment>, now: Moment, linger: Duration) -> Moment {
    let restarts = is(Mutant::LingerExtended);
    rules::linger_until(lingers_until.filter(|until| !restarts || now >= *until), now, linger)
}

/// Mutant 7f: a record is identified by its token as well.
#[must_use]
pub fn is_own_record(found: RecordId, written: RecordId) -> bool {
    rules::is_own_record(found, written)
        || (is(Mutant::TokenIdentifiesRecord) && found.token == written.token)
}

/// Mutant 8: a keep-alive answer makes a lost grant valid again.
#[must_use]
pub fn may_extend_grant(is_lost: bool, is_newer: bool) -> bool {
    rules::may_extend_grant(is_lost && !is(Mutant::LossReverted), is_newer)
}

/// Mutant 9: any lease ID in an answer is accepted.
#[must_use]
pub fn is_own_lease(answered: Option<&str>, lease_id: &str) -> bool {
    is(Mutant::AnyLeaseId) || rules::is_own_lease(answered, lease_id)
}

/// Mutant 11a: the validity counts from the answer.
#[must_use]
pub fn validity_start(sent: ClockPair, answered: ClockPair) -> ClockPair {
    if is(Mutant::CountFromAnswer) { answered } else { rules::validity_start(sent, answered) }
}

/// Mutants 11b and 11e: all sessions end with their stream, or none.
#[must_use]
pub fn ends_with_stream(is_fenced: bool) -> bool {
    if is(Mutant::EverySessionEndsWithStream) {
        true
    } else {
        rules::ends_with_stream(is_fenced) && !is(Mutant::FencedOutlivesStream)
    }
}

/// Mutant 11d: an earlier deadline does not wake the holder.
#[must_use]
pub fn must_wake_holder(deadline: Moment, new_deadline: Moment) -> bool {
    !is(Mutant::HolderNotWoken) && rules::must_wake_holder(deadline, new_deadline)
}

/// Mutant 11f: a waiter without a stream is served.
#[must_use]
pub fn may_be_served(has_stream: bool) -> bool {
    is(Mutant::DisconnectedIsServed) || rules::may_be_served(has_stream)
}

/// Mutant 13b: the lock is free at once.
#[must_use]
pub fn free_at(now: Moment, holder_acts_until: Moment) -> Moment {
    if is(Mutant::FreeAtOnce) { now } else { rules::free_at(now, holder_acts_until) }
}

/// Mutants 14b and 14c: a blob is deleted regardless of its epoch, or by the storage
/// clock alone.
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

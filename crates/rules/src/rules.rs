//! The rules as daemons and clients apply them.

use std::time::Duration;

use leasehold_time::{ClockPair, Entropy, Moment};
use leasehold_types::{TokenRange, token::SEQ_BITS};

/// Interval of clock checks while a timer is armed.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Tolerated difference between the rates of two clocks: one part in this many.
pub(crate) const DRIFT: u32 = 500;

/// Safety rule 1: returns the bits of a fresh lease ID. Every acquisition of a
/// lease gets its own, so that a delayed call can't touch a later hold.
#[must_use]
pub fn fresh_lease_id(entropy: &mut Entropy) -> u128 {
    entropy.bits()
}

/// Number of tokens that one hold of a lease in shared storage reserves. An
/// epoch, one second of the storage clock, has room for 1,024 holds. No lock can
/// therefore outrun that clock, and the tokens of a deleted blob can begin again at
/// the clock's time.
pub const TOKENS_PER_HOLD: u64 = 1 << 10;

/// Maximum lead of the storage clock over this machine's clock, in seconds. A
/// clock with a larger lead is not used.
pub const MAX_CLOCK_LEAD: u64 = 24 * 60 * 60;

/// Minimum age of a token's epoch before its blob may be deleted, in seconds. A
/// recreated blob then begins with higher tokens, by either clock.
pub const MIN_EPOCH_AGE: u64 = 60 * 60;

/// Facts that determine the tokens of a lock's next hold. All times are seconds
/// since 1970.
#[derive(Clone, Copy, Debug)]
pub struct TokenBasis {
    /// First token of the latest hold, as stored with the lock; 0 if there was none
    /// since its blob was created.
    pub stored: u64,
    /// Storage clock, if the storage reported it.
    pub storage_date: Option<u64>,
    /// Wall clock of this machine.
    pub wall: u64,
    /// Highest token that this process has seen with the lock.
    pub highest: u64,
    /// True if this process wrote the stored token, under its own lease.
    pub is_own: bool,
}

/// Reason why a lock can't have tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoToken {
    /// The lock is new, and there is no usable clock to begin its tokens at.
    NewWithoutClock,
    /// Another process may have written the stored token, and there is no usable
    /// clock to distinguish an old record from the latest one.
    StoredWithoutClock,
    /// The lock's tokens are used up.
    Exhausted,
}

/// Safety rule 2: returns the first token of the next hold. Tokens of a lock
/// always increase, also after its blob was deleted, or restored from an old
/// version.
///
/// A new blob has no token: its tokens begin after the second in which it was
/// created by the storage clock, and after all tokens that this process has seen.
/// An epoch has room for all holds of one second, so that tokens from before the
/// deletion are lower.
///
/// Without a usable storage clock, a stored token is continued only if this
/// process wrote it. Any other may belong to an old version that was restored,
/// after a peer had stored higher tokens that this process never saw.
pub fn next_token(basis: &TokenBasis) -> Result<u64, NoToken> {
    let is_usable = |date: &u64| *date <= basis.wall.saturating_add(MAX_CLOCK_LEAD);
    let token = match (basis.stored, basis.storage_date.filter(is_usable)) {
        (0, None) => return Err(NoToken::NewWithoutClock),
        (0, Some(date)) => ((date + 1) << SEQ_BITS).max(basis.highest + TOKENS_PER_HOLD),
        (stored, Some(date)) => (stored + TOKENS_PER_HOLD).max(date << SEQ_BITS),
        (stored, None) if basis.is_own => stored + TOKENS_PER_HOLD,
        (_, None) => return Err(NoToken::StoredWithoutClock),
    };
    if TokenRange::from(token, TOKENS_PER_HOLD).is_empty() {
        return Err(NoToken::Exhausted);
    }
    Ok(token)
}

/// Safety rule 2: returns whether a lock's record is regressed: its token is lower
/// than one that was seen before. Tokens that continue from it would be issued
/// twice. A new blob (token 0) has no earlier state.
#[must_use]
pub const fn is_regressed(stored: u64, highest: u64) -> bool {
    stored != 0 && stored < highest
}

/// Safety rule 3: returns the instant until which a daemon may rely on a lease. It
/// counts from the sending of the call, because the storage counts from a later
/// instant, and it leaves room for the drift between the clocks and a margin.
#[must_use]
pub fn lease_deadline(sent: Moment, duration: Duration) -> Moment {
    sent + (duration - duration / DRIFT - lease_margin(duration))
}

/// Safety margin of a lease.
pub(crate) fn lease_margin(duration: Duration) -> Duration {
    (duration / 20).max(Duration::from_secs(1))
}

/// Safety rule 3: returns the validity that a daemon sends for a duration. It
/// counts from the sending of the client's keep-alive, and is shorter than the
/// duration, because the client's clock may be the slower one.
#[must_use]
pub fn session_validity(duration: Duration) -> Duration {
    duration - duration / DRIFT
}

/// Safety rule 4: returns the timeout of one storage call under a lease of this
/// duration: a fifth of the duration (3 s to 10 s), so that several attempts fit
/// into one lease. Without a timeout, a lost answer would stop the renewals.
#[must_use]
pub fn call_timeout(duration: Duration) -> Duration {
    (duration / 5).clamp(Duration::from_secs(3), Duration::from_secs(10))
}

/// Safety rule 5: returns the clock jump between two readings of both clocks: the
/// time that the wall clock advanced relative to the boot-time clock.
#[must_use]
pub fn clock_jump(earlier: &ClockPair, later: &ClockPair) -> Duration {
    earlier.jump_until(later)
}

/// Safety rule 5: returns the part of an unreported small jump that is carried into
/// the next measurement, so that small jumps add up. Drift explains the rest, in
/// proportion to the `age` of the reference reading.
#[must_use]
pub fn carried_jump(small: Duration, age: Duration) -> Duration {
    small.saturating_sub(age / DRIFT)
}

/// Safety rule 5: returns the time of the next clock check of a daemon whose
/// earliest timer is due at `due`. It does not wait for a distant timer, because a
/// pause must be detected before a wall-clock adjustment can hide it.
#[must_use]
pub fn next_clock_check(due: Moment, now: Moment) -> Moment {
    due.min(now + CLOCK_CHECK_INTERVAL)
}

/// Safety rule 5: returns the instant until which a daemon may rely on a lease.
/// Every clock jump since the deadline was set, however small, brings it forward,
/// because the machine may have been paused while its boot-time clock stopped.
#[must_use]
pub fn valid_until(deadline: Moment, jumps: Duration) -> Moment {
    deadline - jumps
}

/// Safety rule 5: returns the instant until which a holder may act on a lease. That
/// is the later of the two, because the holder knows the deadline but not the
/// daemon's clock jumps, and a jump may only mean that the wall clock was set.
#[must_use]
pub fn holder_acts_until(deadline: Moment, valid_until: Moment) -> Moment {
    deadline.max(valid_until)
}

/// Safety rule 5: returns the instant at which a holder must stop. That is
/// `valid_for` after `sent`, on the clock that advanced further: a clock jump
/// since `sent` brings the instant forward, because the machine may have been
/// paused while the wall clock advanced.
#[must_use]
pub fn holder_deadline(sent: &ClockPair, valid_for: Duration, now: &ClockPair) -> Moment {
    sent.at() + valid_for - sent.jump_until(now)
}

/// Safety rule 5: returns whether a validity has ended, by either clock.
#[must_use]
pub fn is_past_deadline(sent: &ClockPair, valid_for: Duration, now: &ClockPair) -> bool {
    now.at() >= holder_deadline(sent, valid_for, now)
}

/// Safety rules 6 and 8: returns whether a grant may start on a lease. Once a lease
/// is past its validity or was lost, a peer may have it.
#[must_use]
pub fn may_grant(now: Moment, valid_until: Moment, is_retired: bool) -> bool {
    !is_retired && now < valid_until
}

/// Safety rule 6: returns the instant that limits the validity of a grant that
/// starts now: that of its lease, or of its maximum hold time. A limit in the past
/// limits the validity as well, so that the client refuses the grant.
#[must_use]
pub const fn grant_limit(limit: Option<Moment>, _now: Moment) -> Option<Moment> {
    limit
}

/// Safety rule 7: returns whether an unused lease may linger. A lease that does not
/// expire costs nothing to acquire again. If a lease without a grant, or with a
/// published value, lingered, peers would wait for a client that never held the
/// lock, or follow a leader that has resigned.
#[must_use]
pub const fn may_linger(expires: bool, was_granted: bool, is_published: bool) -> bool {
    expires && was_granted && !is_published
}

/// Safety rule 7: returns the end of the linger period of an unused lease.
/// `lingers_until` is the end that was set when the lease became unused: a waiter
/// that leaves without a grant does not extend it.
#[must_use]
pub fn linger_until(lingers_until: Option<Moment>, now: Moment, linger: Duration) -> Moment {
    lingers_until.unwrap_or(now + linger)
}

/// Identity of a version of a lock's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId {
    /// First token of the latest hold.
    pub token: u64,
    /// Fresh random number of each write.
    pub nonce: u128,
}

/// Safety rule 7: returns whether the record found after a write with an unknown
/// outcome is the one that this process tried to write. Only the nonce
/// identifies a write: two daemons that continue the same record choose the same
/// token.
#[must_use]
pub const fn is_own_record(found: RecordId, written: RecordId) -> bool {
    found.nonce == written.nonce
}

/// Safety rule 8: returns whether a validity from the daemon may replace the one
/// that the client has. A grant that was reported lost stays lost, because its
/// holder may have acted on the loss. A validity for an earlier keep-alive is
/// out of date.
#[must_use]
pub const fn may_extend_grant(is_lost: bool, is_newer: bool) -> bool {
    !is_lost && is_newer
}

/// Safety rule 9: returns whether a response of the storage is about the requested
/// lease. Intermediaries and some emulators respond for another lease.
#[must_use]
pub fn is_own_lease(answered: Option<&str>, lease_id: &str) -> bool {
    answered.is_some_and(|answered| answered.eq_ignore_ascii_case(lease_id))
}

/// Safety rule 10: returns the first token of a process with an embedded store:
/// after `highest`, the highest token on disk, and after the tokens of all times up
/// to `wall`. The clock may have been set back, or the file restored.
#[must_use]
pub fn first_token(highest: Option<u64>, wall: u64) -> u64 {
    highest.map_or(0, |highest| highest + 1).max(wall + 1)
}

/// Safety rule 11: returns whether a session ends with its stream. The client of an
/// unfenced session may resume it on a new stream, and acts until its deadline.
#[must_use]
pub const fn ends_with_stream(is_fenced: bool) -> bool {
    is_fenced
}

/// Safety rule 11: returns whether a waiter may be granted the lock. A client
/// without a stream may be dead; it keeps its place in the queue and is passed
/// over.
#[must_use]
pub const fn may_be_served(has_stream: bool) -> bool {
    has_stream
}

/// Safety rule 11: returns the reading from which the validity in a keep-alive
/// answer counts: the sending of that keep-alive. The daemon counts from its
/// arrival, which is later, so that the client's deadline is the earlier one.
/// The answer's arrival has no such bound.
#[must_use]
pub const fn validity_start(sent: ClockPair, _answered: ClockPair) -> ClockPair {
    sent
}

/// Safety rule 11: returns whether a task that waits for the loss of a grant must
/// wake up because the grant's deadline changed: only if it is earlier, because
/// otherwise the task's timer fires before it.
#[must_use]
pub fn must_wake_holder(deadline: Moment, new_deadline: Moment) -> bool {
    new_deadline < deadline
}

/// Safety rule 13: returns the instant at which a lock is free for other clients
/// after the daemon ended its grant, because of a break or a shutdown: not before
/// the holder must have stopped.
#[must_use]
pub fn free_at(now: Moment, holder_acts_until: Moment) -> Moment {
    holder_acts_until.max(now)
}

/// Safety rule 13: returns the instant before which an embedded store grants nothing,
/// if there is one. After an unclean stop, earlier holders may act for `max_ttl`, the
/// longest TTL on disk, because the TTL of a session is durable before it opens.
#[must_use]
pub fn recovered_at(is_clean: bool, max_ttl: Duration, opened: Moment) -> Option<Moment> {
    (!is_clean).then(|| opened + max_ttl)
}

/// Blob of an unused lock. All times are seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct UnusedBlob {
    /// First token of the latest hold.
    pub token: u64,
    /// Time of the last write, by the storage clock.
    pub written_at: u64,
    /// Storage clock.
    pub storage_date: u64,
    /// Wall clock of this machine.
    pub wall: u64,
}

/// Safety rule 14: returns whether the blob of an unused lock may be deleted: it has
/// been idle for `min_idle`, and its epoch is old. Both clocks must agree, because a
/// clock that is temporarily ahead must not delete the tokens of that period.
#[must_use]
pub fn may_collect(blob: &UnusedBlob, min_idle: Duration) -> bool {
    let now = blob.storage_date.min(blob.wall);
    now.saturating_sub(blob.written_at) >= min_idle.as_secs()
        && (blob.token >> SEQ_BITS) + MIN_EPOCH_AGE < now
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn next(stored: u64, highest: u64, storage_date: Option<u64>, is_own: bool) -> Option<u64> {
        next_token(&TokenBasis { stored, storage_date, wall: NOW, highest, is_own }).ok()
    }

    #[test]
    fn tokens_increase_with_holds_and_storage_clock() {
        let next = |stored, highest, date| next(stored, highest, date, true);
        assert_eq!(next(NOW << 20, 0, Some(NOW)), Some((NOW << 20) + TOKENS_PER_HOLD));
        assert_eq!(next(NOW << 20, 0, Some(NOW + 1)), Some((NOW + 1) << 20));
        assert_eq!(next(NOW << 20, 0, None), Some((NOW << 20) + TOKENS_PER_HOLD));
        // A new blob: after all tokens that are possible from before its deletion.
        assert_eq!(next(0, 0, Some(NOW)), Some((NOW + 1) << 20));
        let before = (NOW << 20) + 1023 * TOKENS_PER_HOLD;
        assert!(next(0, 0, Some(NOW)).unwrap() > before + TOKENS_PER_HOLD - 1);
        let seen = (NOW + 5) << 20;
        assert_eq!(next(0, seen, Some(NOW)), Some(seen + TOKENS_PER_HOLD));
        // A clock with too large a lead is ignored, unless there is no other.
        let lead = NOW + MAX_CLOCK_LEAD + 1;
        assert_eq!(next(NOW << 20, 0, Some(lead)), Some((NOW << 20) + TOKENS_PER_HOLD));
        assert_eq!(next(0, 0, Some(lead)), None);
        assert_eq!(next(0, 0, None), None);
        assert_eq!(next((1 << 53) - TOKENS_PER_HOLD, 0, None), None, "used up");
    }

    #[test]
    fn foreign_record_is_not_continued_without_usable_date() {
        let next = |date, is_own| next(NOW << 20, NOW << 20, date, is_own);
        assert_eq!(next(Some(NOW), false), Some((NOW << 20) + TOKENS_PER_HOLD));
        assert_eq!(next(Some(NOW + MAX_CLOCK_LEAD), false), Some((NOW + MAX_CLOCK_LEAD) << 20));
        assert_eq!(next(Some(NOW + MAX_CLOCK_LEAD + 1), false), None);
        assert_eq!(next(None, false), None);
        let lead = Some(NOW + MAX_CLOCK_LEAD + 1);
        assert_eq!(next(lead, true), Some((NOW << 20) + TOKENS_PER_HOLD));
    }

    #[test]
    fn process_starts_after_tokens_on_disk_and_clock() {
        assert_eq!(first_token(None, 7), 8);
        assert_eq!(first_token(Some(5), 7), 8);
        assert_eq!(first_token(Some(9), 7), 10);
    }

    #[test]
    fn unclean_stop_delays_grants_by_longest_ttl() {
        let (opened, ttl) = (Moment::from_boot(Duration::from_secs(100)), Duration::from_secs(10));
        assert_eq!(recovered_at(false, ttl, opened), Some(opened + ttl));
        assert_eq!(recovered_at(true, ttl, opened), None);
    }

    #[test]
    fn deadline_is_before_lease_expiry() {
        let sent = Moment::from_boot(Duration::from_secs(100));
        let after = |seconds| lease_deadline(sent, Duration::from_secs(seconds)).since(sent);
        assert_eq!(after(15), Duration::from_millis(13_970));
        assert_eq!(after(60), Duration::from_millis(56_880));
    }

    #[test]
    fn answer_for_another_lease_is_refused() {
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        assert!(is_own_lease(Some("01234567-89AB-cdef-0123-456789abcdef"), id));
        assert!(!is_own_lease(Some("11234567-89ab-cdef-0123-456789abcdef"), id));
        assert!(!is_own_lease(None, id));
    }
}

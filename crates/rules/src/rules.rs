//! The rules as they hold in the product.

use std::time::Duration;

use leasehold_time::{ClockPair, Entropy, Moment};

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

/// Safety rule 3: returns how long a client may rely on a duration that a daemon
/// grants it, counted from when the client sent its keep-alive. Shorter than the
/// duration, because the client's clock may be the slower one.
#[must_use]
pub fn session_validity(duration: Duration) -> Duration {
    duration - duration / DRIFT
}

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

/// Safety rule 5: returns until when a daemon may rely on a lease: every clock
/// jump since the deadline was set, however small, counts against it. The machine
/// may have been suspended without its boot-time clock having noticed.
#[must_use]
pub fn valid_until(deadline: Moment, jumps: Duration) -> Moment {
    deadline - jumps
}

/// Safety rule 5: returns until when a holder may still act on a lease. The later
/// end, because the holder knows the deadline but not the daemon's clock jumps,
/// and a jump may only mean that the wall clock was set.
#[must_use]
pub fn holder_acts_until(deadline: Moment, valid_until: Moment) -> Moment {
    deadline.max(valid_until)
}

/// Safety rule 5: returns the instant at which a holder must stop. That is
/// `valid_for` after `sent`, on the clock that shows more time: a clock jump
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

/// Safety rule 6: reports whether a grant may start on a lease. Once a lease is
/// past its validity, a peer may have it.
#[must_use]
pub fn may_grant(now: Moment, valid_until: Moment) -> bool {
    now < valid_until
}

/// Safety rule 7: reports whether an unused lease may be kept for a while. A lease
/// that does not expire costs nothing to acquire again. The store shows the holder
/// of a lease without a grant, or with a published value: peers would wait for a
/// client that never held the lock, or follow a leader that has resigned.
#[must_use]
pub const fn may_linger(expires: bool, was_granted: bool, is_published: bool) -> bool {
    expires && was_granted && !is_published
}

/// Safety rule 7: returns until when an unused lease is kept. `lingers_until` is
/// the end that was set when it became unused: a waiter that leaves without a
/// grant does not extend it.
#[must_use]
pub fn linger_until(lingers_until: Option<Moment>, now: Moment, linger: Duration) -> Moment {
    lingers_until.unwrap_or(now + linger)
}

/// Safety rule 8: returns whether a validity from the daemon may replace the one
/// that the client has. A grant that was reported lost stays lost, because its
/// holder may have acted on the loss. A validity for an earlier keep-alive is
/// out of date.
#[must_use]
pub const fn may_extend_grant(is_lost: bool, is_newer: bool) -> bool {
    !is_lost && is_newer
}

/// Safety rule 11: reports whether a session ends with its stream. The client of a
/// session that is not fenced may resume it on a new stream, and acts until its
/// deadline.
#[must_use]
pub const fn ends_with_stream(is_fenced: bool) -> bool {
    is_fenced
}

/// Safety rule 11: reports whether a waiter may be granted the lock. A client
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

/// Safety rule 13: returns when a lock whose grant the daemon ends, because of a
/// break or a shutdown, is free for other clients: not before its holder must have
/// stopped.
#[must_use]
pub fn free_at(now: Moment, holder_acts_until: Moment) -> Moment {
    holder_acts_until.max(now)
}

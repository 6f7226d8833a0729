//! Log lines about locks. An operator needs the lines about risks and losses; the others
//! are for following single locks, with the filter `leasehold::lock=debug`.

use std::time::Duration;

use leasehold_core::{
    journal::{Entry, Fact},
    lock::Cause,
};
use leasehold_store::Breaker;
use leasehold_time::Moment;

/// Maximum number of lines about risks and losses in a [`WINDOW`]. Further ones are logged
/// at `debug`.
const MAX_LINES: u32 = 20;

/// Period for which lines are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Limits the lines that one outage causes for all locks.
#[derive(Debug, Default)]
pub(super) struct LineLimits {
    warn: LineLimit,
    info: LineLimit,
}

/// Limit of the lines of one level.
#[derive(Debug, Default)]
struct LineLimit {
    since: Option<Moment>,
    lines: u32,
}

impl LineLimit {
    /// Returns whether another line is within the limit.
    fn admits(&mut self, now: Moment) -> bool {
        if self.since.is_none_or(|since| now.since(since) >= WINDOW) {
            *self = Self { since: Some(now), lines: 0 };
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines == MAX_LINES + 1 {
            tracing::warn!("more locks are affected; their lines are logged at debug");
        }
        self.lines <= MAX_LINES
    }
}

/// Logs a line about a lock with the fields that all these lines have. The level is
/// `debug` if the limit is exceeded.
macro_rules! line {
    ($level:ident, $entry:expr, { $($field:tt)* }, $message:literal) => {
        tracing::$level!(
            target: "leasehold::lock",
            namespace = $entry.name.namespace(),
            lock = $entry.name.name(),
            $($field)*
            holder = $entry.holder.as_deref().map(tracing::field::display),
            $message
        )
    };
    ($level:ident, $entry:expr, $limit:expr, $now:expr, { $($field:tt)* }, $message:literal) => {
        if $limit.admits($now) {
            line!($level, $entry, { $($field)* }, $message);
        } else {
            line!(debug, $entry, { $($field)* }, $message);
        }
    };
}

/// Logs a fact.
pub(super) fn log(entry: &Entry, limits: &mut LineLimits, now: Moment) {
    match &entry.fact {
        Fact::Ignored => {}
        Fact::Queued => line!(debug, entry, {}, "queued"),
        Fact::Granted { token, waited, .. } => {
            line!(debug, entry, { %token, ?waited, }, "granted");
        }
        Fact::Refused { cause, waited } => {
            line!(debug, entry, { ?cause, ?waited, }, "refused");
        }
        Fact::Canceled { waited } => line!(debug, entry, { ?waited, }, "canceled"),
        Fact::Released { token, held_for } => {
            line!(debug, entry, { %token, ?held_for, }, "released");
        }
        Fact::Lost { token, held_for, cause } => lost(entry, *token, *held_for, cause, limits, now),
        Fact::AtRisk { token, left } => {
            line!(warn, entry, limits.warn, now, { %token, ?left, }, "lock at risk: its lease is not renewed");
        }
        Fact::OutOfRisk { token } => {
            line!(info, entry, limits.info, now, { %token, }, "lock no longer at risk");
        }
        Fact::StepDownRequested { token, breaker, ends_in } => {
            let Breaker { by, reason } = &**breaker;
            line!(
                info,
                entry,
                { %token, %by, %reason, ?ends_in, },
                "asked the holder to step down"
            );
        }
        Fact::LeaseAcquired { took, is_from_peer } => {
            line!(debug, entry, { ?took, is_from_peer, }, "lease acquired");
        }
        Fact::HeldByPeer { by } => {
            let daemon = by.as_ref().and_then(|by| by.daemon.as_deref());
            line!(debug, entry, { daemon, }, "a peer holds the lease");
        }
        Fact::StoreFailed { why } => line!(debug, entry, { %why, }, "no lease"),
        Fact::Renewed { took, left, failures } => {
            line!(trace, entry, { ?took, ?left, failures, }, "lease renewed");
        }
        Fact::RenewalFailed { took, left, failures } => {
            line!(debug, entry, { ?took, ?left, failures, }, "lease not renewed");
        }
        Fact::LeaseLost => line!(debug, entry, {}, "lease lost"),
        Fact::LeaseReleased => line!(trace, entry, {}, "lease released"),
    }
}

/// Logs a loss. The end of a session has a line of its own for all its locks.
fn lost(
    entry: &Entry,
    token: leasehold_types::Token,
    held_for: Duration,
    cause: &Cause,
    limits: &mut LineLimits,
    now: Moment,
) {
    match cause {
        Cause::LeaseLost { why } => {
            line!(warn, entry, limits.warn, now, { %token, ?held_for, %why, }, "lock lost");
        }
        Cause::Broken { by, reason } => {
            line!(warn, entry, { %token, ?held_for, %by, %reason, }, "lock broken");
        }
        Cause::MaxHoldTime => {
            line!(info, entry, limits.info, now, { %token, ?held_for, }, "lock held for its maximum time");
        }
        Cause::SteppedDown { by, .. } => {
            line!(info, entry, limits.info, now, { %token, ?held_for, %by, }, "leader did not step down in time");
        }
        Cause::ShuttingDown => {
            line!(info, entry, limits.info, now, { %token, ?held_for, }, "lock not released before the shutdown");
        }
        Cause::Expired => {
            line!(debug, entry, { %token, ?held_for, }, "lock lost with its session");
        }
    }
}

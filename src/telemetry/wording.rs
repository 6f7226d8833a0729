//! Names and sentences for the facts of the journal.

use std::time::Duration;

use leasehold_core::{
    journal::{Fact, RefusalCause, Source},
    lock::Cause,
};
use leasehold_types::{Holder, Token};

/// Returns the machine-readable kind of a fact.
#[must_use]
pub const fn kind(fact: &Fact) -> &'static str {
    match fact {
        Fact::Ignored => "ignored",
        Fact::Queued => "queued",
        Fact::Granted { .. } => "granted",
        Fact::Refused { .. } => "refused",
        Fact::Canceled { .. } => "canceled",
        Fact::Released { .. } => "released",
        Fact::Lost { .. } => "lost",
        Fact::AtRisk { .. } => "at_risk",
        Fact::OutOfRisk { .. } => "out_of_risk",
        Fact::StepDownRequested { .. } => "step_down_requested",
        Fact::LeaseAcquired { .. } => "lease_acquired",
        Fact::HeldByPeer { .. } => "held_by_peer",
        Fact::StoreFailed { .. } => "store_failed",
        Fact::Renewed { .. } => "renewed",
        Fact::RenewalFailed { .. } => "renewal_failed",
        Fact::LeaseLost => "lease_lost",
        Fact::LeaseReleased => "lease_released",
    }
}

/// Returns the machine-readable cause of a fact; empty if it has none.
#[must_use]
pub const fn cause(fact: &Fact) -> &'static str {
    match fact {
        Fact::Granted { source, .. } => source_name(*source),
        Fact::Refused { cause, .. } => refusal_name(*cause),
        Fact::Lost { cause, .. } => cause_name(cause),
        _ => "",
    }
}

/// Returns the name of the origin of a grant's lease.
#[must_use]
pub const fn source_name(source: Source) -> &'static str {
    match source {
        Source::Lease => "lease",
        Source::Handoff => "handoff",
        Source::Linger => "linger",
    }
}

/// Returns the name of the cause of a refusal.
#[must_use]
pub const fn refusal_name(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::Held => "held",
        RefusalCause::TimedOut => "timed_out",
        RefusalCause::Limit => "limit",
        RefusalCause::ShuttingDown => "shutting_down",
        RefusalCause::Unavailable => "unavailable",
        RefusalCause::Recovering => "recovering",
        RefusalCause::DataLoss => "data_loss",
    }
}

/// Returns the name of the cause of a loss.
#[must_use]
pub const fn cause_name(cause: &Cause) -> &'static str {
    match cause {
        Cause::Expired => "expired",
        Cause::Broken { .. } => "broken",
        Cause::MaxHoldTime => "max_hold_time",
        Cause::LeaseLost { .. } => "lease_lost",
        Cause::SteppedDown { .. } => "stepped_down",
        Cause::ShuttingDown => "shutting_down",
    }
}

/// Returns the token that a fact is about.
#[must_use]
pub const fn token(fact: &Fact) -> Option<Token> {
    match fact {
        Fact::Granted { token, .. }
        | Fact::Released { token, .. }
        | Fact::Lost { token, .. }
        | Fact::AtRisk { token, .. }
        | Fact::OutOfRisk { token }
        | Fact::StepDownRequested { token, .. } => Some(*token),
        _ => None,
    }
}

/// Returns the time that the acquire waited before a fact.
#[must_use]
pub const fn waited(fact: &Fact) -> Option<Duration> {
    match fact {
        Fact::Granted { waited, .. } | Fact::Refused { waited, .. } | Fact::Canceled { waited } => {
            Some(*waited)
        }
        _ => None,
    }
}

/// Returns the time that the lock was held before a fact.
#[must_use]
pub const fn held_for(fact: &Fact) -> Option<Duration> {
    match fact {
        Fact::Released { held_for, .. } | Fact::Lost { held_for, .. } => Some(*held_for),
        _ => None,
    }
}

/// Returns a fact as a sentence, without a final period.
#[must_use]
pub fn sentence(fact: &Fact, holder: Option<&Holder>) -> String {
    let client = holder.map_or_else(|| "a client".to_owned(), ToString::to_string);
    match fact {
        Fact::Ignored => format!("{client} repeated an acquire"),
        Fact::Queued => format!("{client} waits"),
        Fact::Granted { token, waited, source, is_leader } => {
            let verb = if *is_leader { "was elected" } else { "was granted the lock" };
            let how = match source {
                Source::Handoff => ", handed off by the holder before",
                Source::Lease | Source::Linger => "",
            };
            format!("{client} {verb} with token {token} after {}{how}", length(*waited))
        }
        Fact::Refused { cause, waited } => {
            let why = refusal(*cause);
            format!("{client} was refused after {}: {why}", length(*waited))
        }
        Fact::Canceled { waited } => format!("{client} left the queue after {}", length(*waited)),
        Fact::Released { token, held_for } => {
            format!("{client} released the lock (token {token}) after {}", length(*held_for))
        }
        Fact::Lost { token, held_for, cause } => {
            let why = loss(cause);
            format!("{client} lost the lock (token {token}) after {}: {why}", length(*held_for))
        }
        Fact::AtRisk { left, .. } => {
            format!("{client} may lose the lock in {}: lease renewals are failing", length(*left))
        }
        Fact::OutOfRisk { .. } => format!("the lock of {client} is no longer at risk"),
        Fact::StepDownRequested { breaker, ends_in, .. } => {
            let (by, reason, ends_in) = (&breaker.by, &breaker.reason, length(*ends_in));
            format!("{by} asked {client} to step down within {ends_in} (\"{reason}\")")
        }
        Fact::LeaseAcquired { took, is_from_peer } => {
            let from = if *is_from_peer { " after a peer" } else { "" };
            format!("the daemon acquired the lease{from} in {}", length(*took))
        }
        Fact::HeldByPeer { by } => {
            let daemon = by.as_ref().and_then(|by| by.daemon.as_deref());
            format!("{} holds the lease", daemon.unwrap_or("another daemon"))
        }
        Fact::StoreFailed { why } => format!("the lease could not be acquired: {why}"),
        Fact::Renewed { took, left, .. } => {
            format!("the lease was renewed in {}, with {} left", length(*took), length(*left))
        }
        Fact::RenewalFailed { left, failures, .. } => format!(
            "renewal attempt {failures} failed; the lease is valid for another {}",
            length(*left)
        ),
        Fact::LeaseLost => "the storage account reports that the lease is lost".to_owned(),
        Fact::LeaseReleased => "the daemon released the lease".to_owned(),
    }
}

/// Returns the cause of a refusal as a clause.
const fn refusal(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::Held => "another client holds the lock",
        RefusalCause::TimedOut => "the maximum time to wait has ended",
        RefusalCause::Limit => "a limit of the daemon is reached",
        RefusalCause::ShuttingDown => "the daemon is shutting down",
        RefusalCause::Unavailable => "the store is unavailable",
        RefusalCause::Recovering => "the daemon is recovering from an unclean shutdown",
        RefusalCause::DataLoss => "the lock is frozen",
    }
}

/// Returns the cause of a loss as a clause.
#[must_use]
pub fn loss(cause: &Cause) -> String {
    match cause {
        Cause::Expired => "its session expired".to_owned(),
        Cause::Broken { by, reason } => format!("{by} broke the lock (\"{reason}\")"),
        Cause::MaxHoldTime => "its maximum hold time ended".to_owned(),
        Cause::LeaseLost { why } => why.to_string(),
        Cause::SteppedDown { by, reason } => {
            format!("{by} asked it to step down (\"{reason}\")")
        }
        Cause::ShuttingDown => "the daemon was shut down".to_owned(),
    }
}

/// Returns a duration with at most two units, as in "1m 5s" or "120ms".
fn length(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(1) {
        Duration::from_millis(duration.as_millis() as u64)
    } else if duration < Duration::from_secs(10) {
        Duration::from_millis(duration.as_millis() as u64 / 100 * 100)
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

//! Metrics of a daemon.
//!
//! - `table`: names, types and descriptions of all metrics.
//! - `counters`, `names`, `exemplars`: counts of facts about locks, with relaxed atomics.
//! - `gather`: current values of all metrics, with those of the driver, the store and
//!   the `process`.
//! - `family`: values at one time. `text`: their formats.

mod counters;
mod exemplars;
mod family;
mod gather;
mod names;
mod process;
mod table;
mod text;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};

use counters::Counters;
pub use exemplars::Exemplar;
use exemplars::Exemplars;
pub use family::{Family, Sample, Value};
pub use gather::Reading;
use names::Names;
pub use table::{Kind, METRICS, Metric, Presence};
pub use text::{Format, encode};

use leasehold_core::journal::{Entry, Fact};
use leasehold_time::clock::wall;

/// Counts of one daemon since its start.
pub struct Metrics {
    started: SystemTime,
    counters: Counters,
    exemplars: Exemplars,
    names: Names,
    clock_jumps: AtomicU64,
}

impl Metrics {
    /// Creates metrics without counts. `lock_names` is the maximum number of locks that
    /// have their own series.
    #[must_use]
    pub fn new(lock_names: usize) -> Self {
        Self {
            started: wall(),
            counters: Counters::default(),
            exemplars: Exemplars::default(),
            names: Names::new(lock_names),
            clock_jumps: AtomicU64::default(),
        }
    }

    /// Counts a fact. `trace_id` is set if the acquire is sampled.
    pub fn on_entry(&self, entry: &Entry, trace_id: Option<u128>) {
        let bucket = self.counters.count(&entry.fact);
        self.names.count(entry);
        if let (Some(bucket), Some(trace_id)) = (bucket, trace_id)
            && let Fact::Granted { waited, .. } = &entry.fact
        {
            self.exemplars.set(bucket, trace_id, *waited);
        }
    }

    /// Counts a clock jump.
    pub fn on_clock_jump(&self) {
        self.clock_jumps.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{
        journal::{RefusalCause, Source},
        lock::Cause,
        session::{SessionCounts, Survey},
    };
    use leasehold_store::{StoreStats, stats::AccountStats};
    use leasehold_types::{LockName, Token};

    use super::*;
    use crate::telemetry::wording;

    const TOOK: Duration = Duration::from_millis(1);

    fn reading() -> Reading {
        Reading {
            locks: Survey::new(0),
            sessions: SessionCounts::default(),
            store: StoreStats { account: Some(AccountStats::default()), directory: None },
            is_available: true,
        }
    }

    /// Names and labels of the counters that a fact increments.
    fn counted(fact: Fact) -> Vec<String> {
        let metrics = Metrics::new(0);
        let entry =
            Entry { name: LockName::parse("", "a").unwrap(), holder: None, trace: None, fact };
        metrics.on_entry(&entry, None);
        let mut found = Vec::new();
        for family in metrics.gather(&reading()) {
            for Sample { labels, value } in &family.samples {
                let is_counter = family.metric.kind == Kind::Counter;
                if is_counter
                    && family.metric.name.starts_with("leasehold_")
                    && *value == Value::Count(1)
                {
                    found.push(format!("{} {}", family.metric.name, labels.join(" ")));
                }
            }
        }
        found
    }

    #[test]
    fn facts_are_counted_by_their_names() {
        let (token, held_for, waited) = (Token::new(1), TOOK, TOOK);
        for source in [Source::Lease, Source::Linger, Source::Handoff] {
            let fact = Fact::Granted { token, waited, source, is_leader: false };
            let found = counted(fact);
            let expected = format!("leasehold_grants {}", wording::source_name(source));
            assert_eq!(found[0], expected);
            assert_eq!(found.len() == 2, source == Source::Handoff, "{found:?}");
        }
        for cause in [
            RefusalCause::Held,
            RefusalCause::TimedOut,
            RefusalCause::Limit,
            RefusalCause::ShuttingDown,
            RefusalCause::Unavailable,
            RefusalCause::Recovering,
            RefusalCause::DataLoss,
        ] {
            let expected = format!("leasehold_refusals {}", wording::refusal_name(cause));
            assert_eq!(counted(Fact::Refused { cause, waited }), [expected]);
        }
        let (by, reason) = (Box::from("x"), Box::from("y"));
        for cause in [
            Cause::Expired,
            Cause::Broken { by: Box::clone(&by), reason: Box::clone(&reason) },
            Cause::MaxHoldTime,
            Cause::LeaseLost { why: "z".into() },
            Cause::SteppedDown { by, reason },
            Cause::ShuttingDown,
        ] {
            let expected = format!("leasehold_losses {}", wording::cause_name(&cause));
            assert_eq!(counted(Fact::Lost { token, held_for, cause: cause.into() }), [expected]);
        }
        let retry = Fact::RenewalFailed { took: TOOK, left: TOOK, failures: 2 };
        assert_eq!(counted(retry), ["leasehold_renewals failed", "leasehold_renewal_retries "]);
        assert_eq!(counted(Fact::LeaseLost), ["leasehold_renewals lost"]);
        assert_eq!(counted(Fact::Queued), [""; 0]);
    }

    #[test]
    fn clock_jumps_are_counted() {
        let metrics = Metrics::new(0);
        metrics.on_clock_jump();
        let families = metrics.gather(&reading());
        let jumps = families.iter().find(|it| it.metric.name == "leasehold_clock_jumps").unwrap();
        assert_eq!(jumps.samples[0].value, Value::Count(1));
    }
}

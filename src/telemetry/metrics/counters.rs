//! Counters of facts about locks.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use leasehold_core::{
    journal::{Fact, RefusalCause, Source},
    lock::Cause,
};
use leasehold_store::stats::Histogram;

use super::{
    family::{Family, Value},
    table,
};

/// Bounds of times that clients wait or hold, in seconds.
const CLIENT_BOUNDS: [f64; 17] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
    14_400.0, 86_400.0,
];

/// Bounds of durations of calls to the store, in seconds.
const CALL_BOUNDS: [f64; 12] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Bounds of the validity left, in seconds. Leases take 15 to 60 s.
const LEFT_BOUNDS: [f64; 14] =
    [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 40.0, 60.0];

const SOURCES: [&str; 3] = ["lease", "handoff", "linger"];

const REFUSALS: [&str; 7] =
    ["held", "timed_out", "limit", "shutting_down", "unavailable", "recovering", "data_loss"];

const LOSSES: [&str; 6] =
    ["expired", "broken", "max_hold_time", "lease_lost", "stepped_down", "shutting_down"];

const RENEWALS: [&str; 3] = ["renewed", "failed", "lost"];

/// Counters of all locks.
pub(super) struct Counters {
    grants: [AtomicU64; SOURCES.len()],
    refusals: [AtomicU64; REFUSALS.len()],
    losses: [AtomicU64; LOSSES.len()],
    cancels: AtomicU64,
    releases: AtomicU64,
    at_risk: AtomicU64,
    remote_handoffs: AtomicU64,
    renewals: [AtomicU64; RENEWALS.len()],
    renewal_retries: AtomicU64,
    wait: Histogram,
    hold: Histogram,
    lease_acquire: Histogram,
    renewal: Histogram,
    renewal_left: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            grants: Default::default(),
            refusals: Default::default(),
            losses: Default::default(),
            cancels: AtomicU64::default(),
            releases: AtomicU64::default(),
            at_risk: AtomicU64::default(),
            remote_handoffs: AtomicU64::default(),
            renewals: Default::default(),
            renewal_retries: AtomicU64::default(),
            wait: Histogram::new(&CLIENT_BOUNDS),
            hold: Histogram::new(&CLIENT_BOUNDS),
            lease_acquire: Histogram::new(&CALL_BOUNDS),
            renewal: Histogram::new(&CALL_BOUNDS),
            renewal_left: Histogram::new(&LEFT_BOUNDS),
        }
    }
}

impl Counters {
    /// Counts a fact. Returns the bucket of the time that a granted acquire waited.
    pub(super) fn count(&self, fact: &Fact) -> Option<usize> {
        match fact {
            Fact::Granted { waited, source, .. } => {
                increment(&self.grants[source_index(*source)]);
                return Some(self.wait.observe(*waited));
            }
            Fact::Refused { cause, .. } => increment(&self.refusals[refusal_index(*cause)]),
            Fact::Canceled { .. } => increment(&self.cancels),
            Fact::Released { held_for, .. } => {
                increment(&self.releases);
                self.hold.observe(*held_for);
            }
            Fact::Lost { held_for, cause, .. } => {
                increment(&self.losses[loss_index(cause)]);
                self.hold.observe(*held_for);
            }
            Fact::AtRisk { .. } => increment(&self.at_risk),
            Fact::LeaseAcquired { took, is_from_peer } => {
                self.lease_acquire.observe(*took);
                if *is_from_peer {
                    increment(&self.remote_handoffs);
                }
            }
            Fact::Renewed { took, left, failures } => {
                self.renewed(0, *took, *failures > 0);
                self.renewal_left.observe(*left);
            }
            Fact::RenewalFailed { took, failures, .. } => self.renewed(1, *took, *failures > 1),
            Fact::LeaseLost => increment(&self.renewals[2]),
            Fact::Ignored
            | Fact::Queued
            | Fact::OutOfRisk { .. }
            | Fact::StepDownRequested { .. }
            | Fact::HeldByPeer { .. }
            | Fact::StoreFailed { .. }
            | Fact::LeaseReleased => {}
        }
        None
    }

    fn renewed(&self, result: usize, took: Duration, is_retry: bool) {
        increment(&self.renewals[result]);
        self.renewal.observe(took);
        if is_retry {
            increment(&self.renewal_retries);
        }
    }

    /// Appends the metrics of all daemons.
    pub(super) fn read(&self, out: &mut Vec<Family>) {
        let local_handoffs = self.grants[source_index(Source::Handoff)].load(Relaxed);
        let handoffs = [("local", local_handoffs), ("remote", self.remote_handoffs.load(Relaxed))];
        out.extend([
            labeled(&table::GRANTS, &SOURCES, &self.grants),
            labeled(&table::REFUSALS, &REFUSALS, &self.refusals),
            Family::count(&table::CANCELS, self.cancels.load(Relaxed)),
            Family::count(&table::RELEASES, self.releases.load(Relaxed)),
            labeled(&table::LOSSES, &LOSSES, &self.losses),
            Family::count(&table::AT_RISK, self.at_risk.load(Relaxed)),
            Family::single(&table::WAIT, Value::Durations(self.wait.read())),
            Family::single(&table::HOLD, Value::Durations(self.hold.read())),
            Family::labeled(
                &table::HANDOFFS,
                handoffs.map(|(scope, count)| ([scope], Value::Count(count))),
            ),
            Family::single(&table::LEASE_ACQUIRE, Value::Durations(self.lease_acquire.read())),
        ]);
    }

    /// Appends the metrics of daemons whose leases expire.
    pub(super) fn read_renewals(&self, out: &mut Vec<Family>) {
        out.extend([
            labeled(&table::RENEWALS, &RENEWALS, &self.renewals),
            Family::count(&table::RENEWAL_RETRIES, self.renewal_retries.load(Relaxed)),
            Family::single(&table::RENEWAL, Value::Durations(self.renewal.read())),
            Family::single(&table::RENEWAL_LEFT, Value::Durations(self.renewal_left.read())),
        ]);
    }
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

fn labeled(metric: &'static table::Metric, names: &[&'static str], all: &[AtomicU64]) -> Family {
    let counts = all.iter().map(|count| Value::Count(count.load(Relaxed)));
    Family::labeled(metric, names.iter().map(|name| [*name]).zip(counts))
}

const fn source_index(source: Source) -> usize {
    match source {
        Source::Lease => 0,
        Source::Handoff => 1,
        Source::Linger => 2,
    }
}

const fn refusal_index(cause: RefusalCause) -> usize {
    match cause {
        RefusalCause::Held => 0,
        RefusalCause::TimedOut => 1,
        RefusalCause::Limit => 2,
        RefusalCause::ShuttingDown => 3,
        RefusalCause::Unavailable => 4,
        RefusalCause::Recovering => 5,
        RefusalCause::DataLoss => 6,
    }
}

const fn loss_index(cause: &Cause) -> usize {
    match cause {
        Cause::Expired => 0,
        Cause::Broken { .. } => 1,
        Cause::MaxHoldTime => 2,
        Cause::LeaseLost { .. } => 3,
        Cause::SteppedDown { .. } => 4,
        Cause::ShuttingDown => 5,
    }
}

//! Metrics of single locks, for a limited number of them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_core::journal::{Entry, Fact};
use leasehold_time::HashMap;
use leasehold_types::LockName;

use super::{
    family::{Family, Value},
    table::{self, Metric},
};

/// Counters by lock. The first locks get series of their own; all others share one with
/// empty labels, which no lock has.
pub(super) struct Names {
    /// Maximum number of locks with their own series.
    most: usize,
    locks: Mutex<(HashMap<LockName, Sums>, Sums)>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    grants: u64,
    losses: u64,
    refusals: u64,
    wait: Duration,
    hold: Duration,
}

impl Names {
    pub(super) fn new(most: usize) -> Self {
        Self { most, locks: Mutex::default() }
    }

    /// Counts a fact for its lock.
    pub(super) fn count(&self, entry: &Entry) {
        if self.most == 0 {
            return;
        }
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let (named, others) = &mut *locks;
        // A series begins with a grant or a refusal, which every lock has first.
        if named.len() < self.most
            && matches!(entry.fact, Fact::Granted { .. } | Fact::Refused { .. })
            && !named.contains_key(&entry.name)
        {
            named.insert(entry.name.clone(), Sums::default());
        }
        let sums = named.get_mut(&entry.name).unwrap_or(others);
        match &entry.fact {
            Fact::Granted { waited, .. } => {
                sums.grants += 1;
                sums.wait += *waited;
            }
            Fact::Refused { .. } => sums.refusals += 1,
            Fact::Released { held_for, .. } => sums.hold += *held_for,
            Fact::Lost { held_for, .. } => {
                sums.losses += 1;
                sums.hold += *held_for;
            }
            _ => {}
        }
    }

    /// Appends the metrics, if there are series for locks.
    pub(super) fn read(&self, out: &mut Vec<Family>) {
        if self.most == 0 {
            return;
        }
        let mut all: Vec<([String; 2], Sums)> = {
            let locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            let labels = |name: &LockName| [name.namespace().to_owned(), name.name().to_owned()];
            let named = locks.0.iter().map(|(name, sums)| (labels(name), *sums));
            named.chain([([String::new(), String::new()], locks.1)]).collect()
        };
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let family = |metric: &'static Metric, value: fn(&Sums) -> Value| {
            Family::labeled(metric, all.iter().map(|(labels, sums)| (labels.clone(), value(sums))))
        };
        out.extend([
            family(&table::LOCK_GRANTS, |sums| Value::Count(sums.grants)),
            family(&table::LOCK_LOSSES, |sums| Value::Count(sums.losses)),
            family(&table::LOCK_REFUSALS, |sums| Value::Count(sums.refusals)),
            family(&table::LOCK_WAIT, |sums| Value::Number(sums.wait.as_secs_f64())),
            family(&table::LOCK_HOLD, |sums| Value::Number(sums.hold.as_secs_f64())),
        ]);
    }
}

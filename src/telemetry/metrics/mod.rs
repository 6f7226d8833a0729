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

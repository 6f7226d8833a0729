//! What operators see of a daemon: logs, counters, and the history of its locks.
//!
//! The core appends facts about locks to a journal. [`Telemetry`] receives each
//! entry under the driver's mutex.

pub mod history;
mod logs;
pub mod wording;

pub(crate) use logs::parse_filter;
pub use logs::{init, subscriber};

use leasehold_core::journal::{Entry, Fact, Source};
use leasehold_time::Moment;

use self::history::History;

/// Receives the journal of a daemon's locks.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// Recent events of each lock.
    pub history: History,
    /// Counters since the start of the daemon.
    pub counters: Counters,
}

/// Counters of a daemon since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Acquires that were granted.
    pub grants: u64,
    /// Acquires that were refused.
    pub refusals: u64,
    /// Grants that were released.
    pub releases: u64,
    /// Grants that were lost.
    pub losses: u64,
    /// Grants under the lease of the holder before.
    pub handoffs: u64,
    /// Warnings that a grant may be lost.
    pub at_risk: u64,
}

impl Telemetry {
    /// Creates telemetry that keeps at most this many events of locks.
    #[must_use]
    pub fn new(max_events: usize) -> Self {
        Self { history: History::new(max_events), counters: Counters::default() }
    }

    /// Returns whether the core must keep the journal.
    #[must_use]
    pub const fn wants_journal(&self) -> bool {
        self.history.is_enabled()
    }

    /// Handles an entry of the journal.
    pub(crate) fn on_entry(&mut self, entry: Entry, now: Moment) {
        self.counters.count(&entry.fact);
        self.history.record(entry, now);
    }
}

impl Counters {
    fn count(&mut self, fact: &Fact) {
        match fact {
            Fact::Granted { source, .. } => {
                self.grants += 1;
                self.handoffs += u64::from(*source == Source::Handoff);
            }
            Fact::Refused { .. } => self.refusals += 1,
            Fact::Released { .. } => self.releases += 1,
            Fact::Lost { .. } => self.losses += 1,
            Fact::AtRisk { .. } => self.at_risk += 1,
            _ => {}
        }
    }
}

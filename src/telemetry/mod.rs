//! Telemetry of a daemon for its operators: logs, counters, metrics, traces, and the
//! history of its locks.
//!
//! The core appends facts about locks to a journal. [`Telemetry`] receives each
//! entry under the driver's mutex.

mod events;
pub mod history;
mod logs;
pub mod metrics;
pub mod otlp;
mod sampler;
pub mod traces;
pub mod wording;

use std::sync::Arc;

pub(crate) use logs::parse_filter;
pub use logs::{LogFilter, init, subscriber};

use std::time::Duration;

use leasehold_core::journal::{Entry, Fact, Level, Source, TraceKey};
use leasehold_store::StoreCall;
use leasehold_time::Moment;
use leasehold_types::LockName;
use opentelemetry::Context;

use self::{
    events::LineLimits,
    history::History,
    metrics::Metrics,
    traces::{RemoteContext, Traces, Tracing},
};

/// Receives the journal of a daemon's locks.
#[derive(Default)]
pub struct Telemetry {
    /// Recent events of each lock.
    pub history: History,
    /// Counters since the start of the daemon.
    pub counters: Counters,
    metrics: Option<Arc<Metrics>>,
    lines: LineLimits,
    is_enabled: bool,
    tracing: Option<Tracing>,
    traces: Option<Traces>,
}

/// Counters of a daemon since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Acquires that were granted.
    pub grants: u64,
    /// Time that granted acquires waited, in total.
    pub waited: Duration,
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
        Self { history: History::new(max_events), is_enabled: true, ..Self::default() }
    }

    /// Counts metrics as well.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Returns the metrics, if they are counted.
    #[must_use]
    pub fn metrics(&self) -> Option<Arc<Metrics>> {
        self.metrics.clone()
    }

    /// Adds traces.
    #[must_use]
    pub fn with_tracing(self, tracing: Option<Tracing>) -> Self {
        Self { traces: tracing.as_ref().map(Traces::new), tracing, ..self }
    }

    /// Returns the start of traces, unless they are off.
    pub(crate) const fn tracing(&self) -> Option<&Tracing> {
        self.tracing.as_ref()
    }

    /// Returns the facts that the core must append to the journal. Successful calls to
    /// the store are not in the history.
    #[must_use]
    pub fn journal_level(&self) -> Level {
        let has_call_lines = tracing::enabled!(target: "leasehold::lock", tracing::Level::DEBUG);
        match self.is_enabled {
            false => Level::Off,
            true if self.metrics.is_some() || self.traces.is_some() || has_call_lines => Level::All,
            true => Level::Events,
        }
    }

    /// Handles an entry of the journal.
    pub(crate) fn on_entry(&mut self, entry: Entry, now: Moment) {
        events::log(&entry, &mut self.lines, now);
        self.counters.count(&entry.fact);
        if let Some(metrics) = &self.metrics {
            let traces = self.traces.as_ref();
            metrics.on_entry(&entry, entry.trace.and_then(|key| traces?.trace_id(key)));
        }
        if let Some(traces) = &mut self.traces {
            traces.on_entry(&entry);
        }
        self.history.record(entry, now);
    }

    /// Handles a clock jump.
    pub(crate) fn on_clock_jump(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.on_clock_jump();
        }
    }
}

impl Telemetry {
    /// Starts the trace of an acquire that is sampled.
    pub(crate) fn begin_trace(
        &mut self,
        remote: &RemoteContext,
        name: &LockName,
    ) -> Option<TraceKey> {
        self.traces.as_mut()?.begin(remote, name)
    }

    /// Returns the context of a call to the store, if it has a trace.
    pub(crate) fn call_context(
        &mut self,
        trace: Option<TraceKey>,
        call: &StoreCall,
    ) -> Option<Context> {
        self.traces.as_mut()?.on_call(trace?, call)
    }
}

impl Counters {
    fn count(&mut self, fact: &Fact) {
        match fact {
            Fact::Granted { source, waited, .. } => {
                self.grants += 1;
                self.waited = self.waited.saturating_add(*waited);
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

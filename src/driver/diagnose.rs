//! Diagnosis for operators: one lock in detail, and a survey of all locks.

use super::Driver;
use crate::telemetry::{Counters, Telemetry, history::Event};
use leasehold_core::session::{Explanation, Survey};
use leasehold_store as lease;
use leasehold_store::CallCount;
use leasehold_time::Moment;
use leasehold_types::LockName;

/// Maximum number of waiters in an explanation.
pub(super) const MAX_EXPLAINED_WAITERS: usize = 100;

/// Maximum number of locks in each list of an overview.
pub const MAX_LISTED_LOCKS: usize = 100;

/// Number of events in an overview.
const LISTED_EVENTS: usize = 25;

/// Places of the lock table that a survey reads at a time.
pub(super) const SURVEY_STEP: usize = 4096;

/// One lock in detail, and its recent events.
#[derive(Clone, Debug)]
pub struct Diagnosed {
    /// State of the lock.
    pub explanation: Explanation,
    /// Recent events, oldest first.
    pub events: Vec<Event>,
    /// Time at which the state was read.
    pub at: Moment,
    /// Error of the store, if it could not be read. The state is that of this daemon
    /// alone then.
    pub store_error: Option<lease::Error>,
}

/// Main numbers of a daemon.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Totals, and the first locks by several orders.
    pub survey: Survey,
    /// Locks with the most grants in the last one to two minutes.
    pub busiest: Vec<(LockName, u32)>,
    /// Last events of all locks, oldest first.
    pub events: Vec<(LockName, Event)>,
    /// Counters since the start of the daemon.
    pub counters: Counters,
    /// Storage calls since the start of the daemon.
    pub calls: Vec<CallCount>,
    /// Human-readable description of the store.
    pub store: String,
    /// Reason why the store can't grant now.
    pub unavailability: Option<lease::Error>,
    /// Time at which the numbers were read.
    pub at: Moment,
}

impl Driver {
    /// Returns the state of a lock in detail, and its recent events. Reads the store if
    /// no session of this daemon holds the lock.
    pub async fn explain(&self, name: &LockName) -> Diagnosed {
        let local = self.state_after_timers().sessions.view(name, Moment::now());
        let is_local = local.held.as_ref().is_some_and(|held| held.session.is_some());
        let stored = if is_local { None } else { Some(self.inspect(name).await) };
        let state = self.state_after_timers();
        let at = Moment::now();
        let mut explanation = state.sessions.explain(name, MAX_EXPLAINED_WAITERS, at);
        let mut store_error = None;
        match stored {
            // A session of this daemon may have been granted the lock meanwhile.
            Some(Ok(view)) if explanation.grant.is_none() => {
                explanation.view.held = view.held;
            }
            Some(Err(error)) => store_error = Some(error),
            _ => {}
        }
        let events = state.telemetry.history.of(name).cloned().collect();
        Diagnosed { explanation, events, at, store_error }
    }

    /// Returns the main numbers of this daemon, with at most `limit` locks in each list.
    pub async fn overview(&self, limit: usize) -> Overview {
        let limit = limit.min(MAX_LISTED_LOCKS);
        let mut survey = Survey::new(limit);
        loop {
            self.state_after_timers().sessions.survey(&mut survey, SURVEY_STEP, Moment::now());
            if survey.is_complete() {
                break;
            }
            // Other tasks of this thread run between the parts.
            tokio::task::yield_now().await;
        }
        let at = Moment::now();
        let (busiest, events, counters) = {
            let Telemetry { history, counters, .. } = &self.state().telemetry;
            (history.busiest(limit, at), history.recent(LISTED_EVENTS), *counters)
        };
        Overview {
            survey,
            busiest,
            events,
            counters,
            calls: self.shared.store.calls(),
            store: self.shared.store.describe(),
            unavailability: self.shared.store.unavailability(),
            at,
        }
    }
}

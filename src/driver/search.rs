//! Reads for observers that stay: they never cause a storage call.

use super::{
    Driver,
    diagnose::{MAX_EXPLAINED_WAITERS, SURVEY_STEP},
};
use crate::{driver::Diagnosed, telemetry::Counters};
use leasehold_core::session::{Explanation, LockFilter, Search};
use leasehold_time::Moment;
use leasehold_types::LockName;

/// One page of locks.
#[derive(Clone, Debug)]
pub struct Found {
    /// States of the locks, in the order of their names, with at most one waiter each.
    pub locks: Vec<Explanation>,
    /// Number of selected locks on all pages.
    pub total: usize,
    /// True if selected locks follow the page.
    pub has_more: bool,
    /// Time at which the states were read.
    pub at: Moment,
}

impl Driver {
    /// Returns one page of the locks that have a holder or a waiter at this daemon.
    pub async fn search(&self, filter: LockFilter, limit: usize) -> Found {
        let mut search = Search::new(filter, limit);
        loop {
            self.state_after_timers().sessions.search(&mut search, SURVEY_STEP, Moment::now());
            if search.is_complete() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let state = self.state_after_timers();
        let at = Moment::now();
        let locks = search.names().map(|name| state.sessions.explain(name, 1, at)).collect();
        Found { locks, total: search.total(), has_more: search.has_more(), at }
    }

    /// Returns the state of a lock in detail, as known without a read of the store. A
    /// holder at a peer is known while the lock is watched.
    #[must_use]
    pub fn explain_known(&self, name: &LockName) -> Diagnosed {
        let state = self.state_after_timers();
        let at = Moment::now();
        let mut explanation = state.sessions.explain(name, MAX_EXPLAINED_WAITERS, at);
        explanation.view = state.view(name);
        let events = state.telemetry.history.of(name).cloned().collect();
        Diagnosed { explanation, events, at, store_error: None }
    }

    /// Returns the counters since the start of the daemon.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state().telemetry.counters
    }

    /// Returns the number of changes of locks so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.state().changes
    }
}

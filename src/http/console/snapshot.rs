//! Snapshots of what a view shows, as JSON.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::sync::{Mutex, watch};

use super::{
    About,
    json::{self, Clock, Counts, Health, Lock, LockEvent, Page, Snapshot, Waiter, Waiters},
    request::View,
};
use crate::driver::{Diagnosed, Driver, Overview};
use leasehold_store::LeaseStore;
use leasehold_time::Moment;
use leasehold_types::LockName;

/// Minimum age of an overview before it is read again. All streams share it.
const MIN_OVERVIEW_AGE: Duration = Duration::from_millis(500);

/// Maximum share of the time that reads of the overview take.
const MAX_COST: u32 = 20;

/// Number of locks in each list of the daemon's view.
const LISTED_LOCKS: usize = 5;

/// Reads snapshots. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) driver: Driver,
    pub(super) about: Arc<About>,
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) draining: watch::Receiver<bool>,
    overview: Arc<Mutex<Option<Cached>>>,
}

struct Cached {
    overview: Arc<Overview>,
    until: Moment,
}

/// State of the daemon and its storage.
#[derive(Serialize)]
struct DaemonView<'a> {
    daemon: DaemonFacts<'a>,
    store: StoreFacts,
    longest: Vec<Lock>,
    queues: Vec<Lock>,
    at_risk: Vec<Lock>,
    busiest: Vec<Busy>,
    /// Newest first.
    events: Vec<LockEvent>,
}

#[derive(Serialize)]
struct DaemonFacts<'a> {
    pid: u32,
    host: &'a str,
    started: u64,
    listen: &'a [String],
    history_limit: usize,
}

#[derive(Serialize)]
struct StoreFacts {
    description: String,
    shared: bool,
    calls: Vec<StoreCall>,
}

#[derive(Serialize)]
struct StoreCall {
    operation: &'static str,
    purpose: &'static str,
    count: u64,
}

#[derive(Serialize)]
struct Busy {
    namespace: String,
    name: String,
    grants: u32,
}

impl Reader {
    pub(super) fn new(
        driver: Driver,
        about: About,
        store: Arc<dyn LeaseStore>,
        draining: watch::Receiver<bool>,
    ) -> Self {
        Self { driver, about: Arc::new(about), store, draining, overview: Arc::default() }
    }

    /// Returns the snapshot of a view. A stored lock is read only if `from_store`.
    pub(super) async fn read(&self, view: &View, from_store: bool) -> String {
        match view {
            View::Daemon => self.daemon().await,
            View::Lock(name) if from_store => {
                self.lock(name, &self.driver.explain(name).await).await
            }
            View::Lock(name) => self.lock(name, &self.driver.explain_known(name)).await,
            View::Locks { filter, limit } => {
                let found = self.driver.search(filter.clone(), *limit).await;
                let clock = Clock::of(found.at);
                let last = found.locks.last().filter(|_| found.has_more);
                let page = Page {
                    total: found.total,
                    next: last.map(|lock| cursor(&lock.view.name)),
                    locks: found.locks.iter().map(|lock| Lock::new(lock, &clock)).collect(),
                };
                self.snapshot(&clock, page).await
            }
        }
    }

    async fn lock(&self, name: &LockName, diagnosed: &Diagnosed) -> String {
        let Diagnosed { explanation, events, at, store_error } = diagnosed;
        let clock = Clock::of(*at);
        let waiters = explanation.waiters.iter().enumerate();
        let detail = json::Detail {
            lock: Lock::new(explanation, &clock),
            diagnosis: explanation.diagnosis().name(),
            summary: explanation.summary(),
            lease: json::lease(&explanation.lease),
            waiters: Waiters {
                total: explanation.view.waiting,
                items: waiters.map(|(index, waiter)| Waiter::new(index, waiter, &clock)).collect(),
            },
            history: events.iter().rev().map(|one| LockEvent::new(name, one, &clock)).collect(),
            store_error: store_error.as_ref().map(ToString::to_string),
        };
        self.snapshot(&clock, detail).await
    }

    async fn daemon(&self) -> String {
        let overview = self.overview().await;
        let clock = Clock::of(overview.at);
        let About { pid, host, started, listen, history_limit, .. } = &*self.about;
        let locks = |list: &[leasehold_core::session::LockSummary]| {
            list.iter().map(|lock| Lock::from_summary(lock, &clock)).collect()
        };
        let survey = &overview.survey;
        let events = &overview.events;
        let view = DaemonView {
            daemon: DaemonFacts {
                pid: *pid,
                host,
                started: *started,
                listen,
                history_limit: *history_limit,
            },
            store: StoreFacts {
                description: overview.store.clone(),
                shared: self.store.is_shared(),
                calls: overview.calls.iter().map(StoreCall::from).collect(),
            },
            longest: locks(&survey.longest_held),
            queues: locks(&survey.longest_queues),
            at_risk: locks(&survey.most_at_risk),
            busiest: overview.busiest.iter().map(Busy::from).collect(),
            events: events
                .iter()
                .rev()
                .map(|(name, one)| LockEvent::new(name, one, &clock))
                .collect(),
        };
        self.snapshot(&clock, view).await
    }

    async fn snapshot(&self, clock: &Clock, view: impl Serialize) -> String {
        let overview = self.overview().await;
        let survey = &overview.survey;
        let snapshot = Snapshot {
            now: clock.unix(),
            health: Health {
                version: env!("CARGO_PKG_VERSION"),
                unavailable: self.store.unavailability().map(|error| error.to_string()),
                draining: *self.draining.borrow(),
                endpoint: self.about.endpoint.as_deref(),
            },
            counts: Counts {
                locks: survey.locks,
                held: survey.held,
                waiting: survey.waiting,
                at_risk: survey.at_risk,
                leaderless: survey.leaderless,
                sessions: survey.sessions,
            },
            totals: self.driver.counters().into(),
            calls: overview.calls.iter().map(|call| call.count).sum(),
            view,
        };
        // All fields of these structs have a JSON form.
        serde_json::to_string(&snapshot).unwrap_or_default()
    }

    /// Returns a recent overview. Its age grows with the time that a read takes.
    async fn overview(&self) -> Arc<Overview> {
        // Other readers wait for the same survey.
        let mut cached = self.overview.lock().await;
        if let Some(Cached { overview, until }) = &*cached
            && !until.has_passed()
        {
            return Arc::clone(overview);
        }
        let start = Moment::now();
        let overview = Arc::new(self.driver.overview(LISTED_LOCKS).await);
        let cost = Moment::now().since(start);
        let until = start + MIN_OVERVIEW_AGE.max(cost * MAX_COST);
        *cached = Some(Cached { overview: Arc::clone(&overview), until });
        overview
    }
}

/// Returns the cursor of the page after this lock.
fn cursor(name: &LockName) -> String {
    format!("{}/{}", name.namespace(), name.name())
}

impl From<&leasehold_store::CallCount> for StoreCall {
    fn from(call: &leasehold_store::CallCount) -> Self {
        Self { operation: call.operation, purpose: call.purpose, count: call.count }
    }
}

impl From<&(LockName, u32)> for Busy {
    fn from((name, grants): &(LockName, u32)) -> Self {
        Self {
            namespace: name.namespace().to_owned(),
            name: name.name().to_owned(),
            grants: *grants,
        }
    }
}

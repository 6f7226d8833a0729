//! JSON of the console. Times are in milliseconds: of the Unix epoch for instants. No
//! session ID, handle or lease ID is included.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde::Serialize;

use crate::telemetry::{Counters, history::Event, wording};
use leasehold_core::{
    lock::{Blocker, LeaseView},
    session::{Explanation, LockSummary, WaiterView},
};
use leasehold_time::{ClockPair, Moment};
use leasehold_types::{LockName, Token, holder};

/// Clock of a snapshot: converts instants of this machine to the wall clock.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) at: Moment,
    unix: u64,
}

impl Clock {
    /// Creates the clock of a state that was read at `at`.
    pub(super) fn of(at: Moment) -> Self {
        let now = ClockPair::now();
        let since = now.at().since(at).as_millis() as u64;
        Self { at, unix: unix_millis(now.wall()).saturating_sub(since) }
    }

    pub(super) const fn unix(&self) -> u64 {
        self.unix
    }

    fn ago(&self, time: Duration) -> u64 {
        self.unix.saturating_sub(time.as_millis() as u64)
    }

    fn ahead(&self, time: Duration) -> u64 {
        self.unix.saturating_add(time.as_millis() as u64)
    }

    fn unix_of(&self, at: Moment) -> u64 {
        self.ago(self.at.since(at))
    }
}

/// Returns a time of the wall clock in milliseconds of the Unix epoch.
pub(super) fn unix_millis(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Contents of all snapshots.
#[derive(Serialize)]
pub(super) struct Snapshot<'a, T> {
    pub(super) now: u64,
    pub(super) health: Health<'a>,
    pub(super) counts: Counts,
    pub(super) totals: Sums,
    /// Storage calls since the start of the daemon.
    pub(super) calls: u64,
    #[serde(flatten)]
    pub(super) view: T,
}

#[derive(Serialize)]
pub(super) struct Health<'a> {
    pub(super) version: &'static str,
    /// Reason why no lock can be granted.
    pub(super) unavailable: Option<String>,
    pub(super) draining: bool,
    /// Address of this daemon for the command line, unless it is the default one.
    pub(super) endpoint: Option<&'a str>,
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Counts {
    pub(super) locks: usize,
    pub(super) held: usize,
    pub(super) waiting: usize,
    pub(super) at_risk: usize,
    pub(super) leaderless: usize,
    pub(super) sessions: usize,
}

#[derive(Serialize)]
pub(super) struct Sums {
    grants: u64,
    handoffs: u64,
    waited_ms: f64,
    refused: u64,
    released: u64,
    lost: u64,
}

impl From<Counters> for Sums {
    fn from(counters: Counters) -> Self {
        Self {
            grants: counters.grants,
            handoffs: counters.handoffs,
            waited_ms: counters.waited.as_secs_f64() * 1000.0,
            refused: counters.refusals,
            released: counters.releases,
            lost: counters.losses,
        }
    }
}

/// One page of locks.
#[derive(Serialize)]
pub(super) struct Page {
    pub(super) locks: Vec<Lock>,
    pub(super) total: usize,
    /// Cursor of the next page.
    pub(super) next: Option<String>,
}

/// One lock in detail.
#[derive(Serialize)]
pub(super) struct Detail {
    pub(super) lock: Lock,
    pub(super) diagnosis: &'static str,
    pub(super) summary: String,
    pub(super) lease: String,
    pub(super) waiters: Waiters,
    /// Newest first.
    pub(super) history: Vec<LockEvent>,
    pub(super) store_error: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Waiters {
    pub(super) total: usize,
    pub(super) items: Vec<Waiter>,
}

#[derive(Serialize)]
pub(super) struct Lock {
    namespace: String,
    name: String,
    state: &'static str,
    election: bool,
    holder: Option<Holder>,
    /// Description of the daemon that holds the lease, if it is a peer.
    daemon: Option<String>,
    value: Option<Value>,
    /// A string, because a number could lose precision.
    token: Option<String>,
    since: Option<u64>,
    ends: Option<u64>,
    /// Length of the validity that a keep-alive gives.
    full: Option<u64>,
    waiting: usize,
}

#[derive(Serialize)]
struct Holder {
    client: String,
    host: String,
    pid: Option<u32>,
    pod: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Value {
    /// None if the value is not UTF-8.
    text: Option<String>,
    bytes: usize,
}

#[derive(Serialize)]
pub(super) struct Waiter {
    key: String,
    position: usize,
    holder: Holder,
    since: u64,
    until: Option<u64>,
    connected: bool,
    candidate: bool,
}

#[derive(Serialize)]
pub(super) struct LockEvent {
    number: u64,
    lock: Name,
    at: u64,
    kind: &'static str,
    cause: &'static str,
    holder: Option<Holder>,
    token: Option<String>,
    held_for: Option<u64>,
    text: String,
}

#[derive(Serialize)]
struct Name {
    namespace: String,
    name: String,
}

impl From<&holder::Holder> for Holder {
    fn from(holder: &holder::Holder) -> Self {
        Self {
            client: holder.client().to_owned(),
            host: holder.host().to_owned(),
            pid: Some(holder.pid()).filter(|pid| *pid > 0),
            pod: Some(holder.pod().to_owned()).filter(|pod| !pod.is_empty()),
            labels: holder.labels().map(|(key, value)| (key.into(), value.into())).collect(),
        }
    }
}

impl From<&LockName> for Name {
    fn from(name: &LockName) -> Self {
        Self { namespace: name.namespace().to_owned(), name: name.name().to_owned() }
    }
}

impl Lock {
    pub(super) fn new(lock: &Explanation, clock: &Clock) -> Self {
        let Name { namespace, name } = (&lock.view.name).into();
        let held = lock.view.held.as_ref();
        let value = held.and_then(|held| held.value.as_deref());
        let ends = match (&lock.grant, held.and_then(|held| held.free_within)) {
            (_, Some(free_within)) => Some(free_within),
            (Some(grant), None) => Some(grant.time_left),
            (None, None) => None,
        };
        Self {
            namespace,
            name,
            state: state(lock),
            election: value.is_some() || lock.waiters.iter().any(|waiter| waiter.is_candidate),
            holder: held.and_then(|held| held.holder.as_deref()).map(Holder::from),
            daemon: held.and_then(|held| held.daemon.as_deref()).map(str::to_owned),
            value: value.map(|value| Value {
                text: std::str::from_utf8(value).ok().map(str::to_owned),
                bytes: value.len(),
            }),
            token: held.and_then(|held| held.token).map(text),
            since: held.and_then(|held| held.held_for).map(|held_for| clock.ago(held_for)),
            ends: ends.map(|left| clock.ahead(left)),
            full: lock.grant.map(|grant| grant.ttl.as_millis() as u64),
            waiting: lock.view.waiting,
        }
    }

    pub(super) fn from_summary(lock: &LockSummary, clock: &Clock) -> Self {
        let Name { namespace, name } = (&lock.name).into();
        Self {
            namespace,
            name,
            state: match lock.holder {
                Some(_) if lock.is_at_risk => "at_risk",
                Some(_) => "held",
                None => "waiting",
            },
            election: lock.is_election,
            holder: lock.holder.as_deref().map(Holder::from),
            daemon: None,
            value: None,
            token: lock.token.map(text),
            since: lock.held_for.map(|held_for| clock.ago(held_for)),
            ends: lock.time_left.map(|left| clock.ahead(left)),
            full: None,
            waiting: lock.waiting,
        }
    }
}

fn text(token: Token) -> String {
    token.to_string()
}

/// Returns the state of a lock as one word.
fn state(lock: &Explanation) -> &'static str {
    match (&lock.grant, &lock.lease) {
        (Some(grant), _) if grant.is_ending => "ending",
        (Some(_), LeaseView::Held(lease)) if lease.is_at_risk => "at_risk",
        (Some(grant), _) if !grant.is_connected => "silent",
        (Some(_), _) => "held",
        (None, _) if lock.view.held.is_some() => "peer",
        (None, _) if lock.view.waiting > 0 => "waiting",
        (None, _) => "free",
    }
}

impl Waiter {
    pub(super) fn new(index: usize, waiter: &WaiterView, clock: &Clock) -> Self {
        let since =
            clock.at.since(Moment::from_boot(Duration::ZERO)).saturating_sub(waiter.waiting_for);
        Self {
            // The start of the wait distinguishes the acquires of a client.
            key: since.as_nanos().to_string(),
            position: index + 1,
            holder: waiter.holder.as_ref().into(),
            since: clock.ago(waiter.waiting_for),
            until: waiter.times_out_in.map(|left| clock.ahead(left)),
            connected: waiter.is_connected,
            candidate: waiter.is_candidate,
        }
    }
}

impl LockEvent {
    pub(super) fn new(name: &LockName, event: &Event, clock: &Clock) -> Self {
        let Event { number, at, holder, fact } = event;
        Self {
            number: *number,
            lock: name.into(),
            at: clock.unix_of(*at),
            kind: wording::kind(fact),
            cause: wording::cause(fact),
            holder: holder.as_deref().map(Holder::from),
            token: wording::token(fact).map(text),
            held_for: wording::held_for(fact).map(|held_for| held_for.as_millis() as u64),
            text: wording::sentence(fact, holder.as_deref()),
        }
    }
}

/// Describes the state of a lease.
pub(super) fn lease(view: &LeaseView) -> String {
    let tenths = |length: Duration| format!("{:.1} s", length.as_secs_f64());
    match view {
        LeaseView::None => "not held by this daemon".to_owned(),
        LeaseView::Acquiring { since } => format!("being acquired for {}", tenths(*since)),
        LeaseView::Blocked { blocker, attempts, .. } => {
            let why = match blocker {
                Blocker::HeldByPeer { .. } => "held by a peer".to_owned(),
                Blocker::StoreError(error) => error.to_string(),
            };
            format!("{why}; attempt {attempts}")
        }
        LeaseView::Held(lease) => match (lease.duration, lease.valid_for) {
            (Some(duration), Some(valid_for)) => {
                let failed = match lease.failed_renewals {
                    0 => String::new(),
                    1 => "; 1 renewal failed".to_owned(),
                    failed => format!("; {failed} renewals failed in a row"),
                };
                format!("valid for {} of {} s{failed}", tenths(valid_for), duration.as_secs())
            }
            _ => "held; it does not expire".to_owned(),
        },
        LeaseView::Releasing { failures: 0 } => "being released".to_owned(),
        LeaseView::Releasing { failures } => {
            let attempts = if *failures == 1 { "attempt" } else { "attempts" };
            format!("being released; {failures} {attempts} failed")
        }
    }
}

//! Recorder of the history for the checker.
//!
//! Processes record their actions when they act. Holds and guards are observed
//! after each step, and before each action of a client. An action of one host
//! reaches another host in a later step only. The order by time, and by
//! recording within one instant, is therefore causal.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::replace,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use leasehold::driver::Driver;
use leasehold_checker::{Bounds, Entry, Event, History, Nanos};
use leasehold_client::{Error, Guard};
use leasehold_runtime::simulation::Peek;
use leasehold_simulated_storage::storage::{Blob, Call, Operation};
use leasehold_simulator::sim_state::{blob_path, lock_name};
use tokio::sync::Notify;

use crate::time;

/// Number of tokens of a hold.
const TOKENS_PER_HOLD: u64 = 1024;

/// Running daemon.
#[derive(Clone)]
pub struct Running {
    /// Unique number of the process.
    pub number: u32,
    /// Driver of the daemon.
    pub driver: Driver,
    /// Starts the shutdown.
    pub stop: Arc<Notify>,
}

/// Pending acquire.
#[derive(Clone, Copy)]
struct Pending {
    op: u64,
    daemon: u32,
    lock: u32,
}

/// Guard of a client.
struct Hold {
    client: u32,
    lock: u32,
    token: u64,
    /// Last recorded deadline.
    until: Option<Nanos>,
    /// True if the loss has been recorded.
    lost: bool,
    guard: Weak<Guard>,
}

/// Recorded history.
#[derive(Default)]
pub struct Record(Mutex<State>);

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    locks: u32,
    daemons: u32,
    clients: u32,
    ops: u64,
    /// Running daemons, by place.
    running: BTreeMap<usize, Running>,
    /// Places of all daemons that were started.
    started: BTreeMap<u32, usize>,
    /// Place of each client's daemon.
    places: BTreeMap<u32, usize>,
    pending: BTreeMap<u32, Pending>,
    /// Number of connections, by client.
    connects: BTreeMap<u32, u32>,
    /// Daemons that are shutting down.
    stopping: BTreeSet<u32>,
    guards: Vec<Hold>,
    /// Last recorded hold, by daemon and lock: first token and deadline.
    holds: BTreeMap<(u32, u32), (u64, Nanos)>,
    /// Last recorded lease of a lock's blob: daemon and expiry.
    leases: BTreeMap<u32, Option<(u32, Nanos)>>,
    /// Daemon that generated a lease ID.
    ids: HashMap<String, u32>,
    /// Highest token seen by the fenced resource of each lock.
    resource: BTreeMap<u32, u64>,
}

impl State {
    fn note(&mut self, event: Event) {
        self.entries.push(Entry { at: time::nanos(), event });
    }

    fn next_op(&mut self) -> u64 {
        self.ops += 1;
        self.ops - 1
    }

    fn number_at(&self, place: usize) -> u32 {
        self.running.get(&place).map_or(u32::MAX, |running| running.number)
    }

    fn record_holds(&mut self) {
        let running: Vec<_> = self.running.values().cloned().collect();
        for Running { number: daemon, driver, .. } in running {
            for lock in 0..self.locks {
                let held = driver.hold(&lock_name(lock));
                let held = held.map(|(first, until)| (first, time::true_time(until)));
                if self.holds.get(&(daemon, lock)).copied() == held {
                    continue;
                }
                if let Some((first, until)) = held {
                    self.holds.insert((daemon, lock), (first, until));
                    let last = first + TOKENS_PER_HOLD - 1;
                    self.note(Event::Holds { daemon, lock, first, last, until });
                } else {
                    self.holds.remove(&(daemon, lock));
                    self.note(Event::HoldEnded { daemon, lock });
                }
            }
        }
    }

    /// Observes guards without changing them: a check by the library would mark
    /// a loss before the client has detected it.
    fn record_guards(&mut self) {
        self.guards.retain(|hold| hold.guard.strong_count() > 0);
        let mut events = Vec::new();
        for hold in &mut self.guards {
            let Some(guard) = hold.guard.upgrade() else { continue };
            // A guard that the session no longer knows was released.
            let seen = guard.peek().map(|(deadline, valid)| (time::true_time(deadline), valid));
            let (until, valid) = seen.unwrap_or((time::nanos(), false));
            if hold.lost && !valid {
                continue;
            }
            let Hold { client, lock, token, .. } = *hold;
            // A lost guard that becomes valid again is recorded as well.
            if hold.until.replace(until) != Some(until) || hold.lost {
                events.push(Event::Valid { client, lock, token, until });
            }
            hold.lost = !valid;
            if hold.lost {
                events.push(Event::Lost { client, lock, token });
            }
        }
        for event in events {
            self.note(event);
        }
    }
}

impl Record {
    /// Creates an empty history for this many locks.
    #[must_use]
    pub fn new(locks: u32) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { locks, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event.
    pub fn note(&self, event: Event) {
        self.state().note(event);
    }

    /// Records changes of holds and guards.
    pub fn observe(&self) {
        let mut state = self.state();
        state.record_holds();
        state.record_guards();
    }

    /// Returns the history in order.
    #[must_use]
    pub fn history(&self, bounds: Bounds) -> History {
        let mut entries = self.state().entries.clone();
        entries.sort_by_key(|entry| entry.at);
        History { bounds, entries }
    }

    /// Returns the number of a new daemon.
    #[must_use]
    pub fn next_daemon(&self) -> u32 {
        let mut state = self.state();
        state.daemons += 1;
        state.daemons - 1
    }

    /// Returns the number of a new client of the daemon at a place.
    #[must_use]
    pub fn next_client(&self, place: usize) -> u32 {
        let mut state = self.state();
        let number = state.clients;
        state.clients += 1;
        state.places.insert(number, place);
        number
    }

    /// Records that a daemon runs at a place.
    pub fn started(&self, place: usize, running: Running) {
        let mut state = self.state();
        state.started.insert(running.number, place);
        state.running.insert(place, running);
    }

    /// Returns whether an earlier daemon of the same place generated this lease ID.
    #[must_use]
    pub fn is_of_predecessor(&self, id: &str, daemon: u32) -> bool {
        let state = self.state();
        state.ids.get(id).is_some_and(|holder| {
            *holder != daemon && state.started.get(holder) == state.started.get(&daemon)
        })
    }

    /// Records that the daemon at a place has ended.
    pub fn ended(&self, place: usize) {
        let mut state = self.state();
        state.record_holds();
        let ended = state.running.remove(&place);
        if let Some(Running { number: daemon, .. }) = ended {
            state.note(Event::DaemonDied { daemon });
        }
    }

    /// Starts the shutdown of the daemon at a place.
    ///
    /// # Panics
    /// If none runs there.
    pub fn stop(&self, place: usize) {
        let mut state = self.state();
        let Running { number, stop, .. } = state.running[&place].clone();
        state.stopping.insert(number);
        stop.notify_one();
    }

    /// Returns the running daemon of a place.
    #[must_use]
    pub fn running(&self, place: usize) -> Option<Running> {
        self.state().running.get(&place).cloned()
    }

    /// Records an acquire.
    pub fn acquire(&self, client: u32, lock: u32) {
        let mut state = self.state();
        let daemon = state.places.get(&client).map_or(u32::MAX, |place| state.number_at(*place));
        let op = state.next_op();
        state.pending.insert(client, Pending { op, daemon, lock });
        state.note(Event::Acquire { op, client, daemon, lock });
    }

    /// Records that an acquire is queued.
    pub fn queued(&self, client: u32) {
        let mut state = self.state();
        if let Some(Pending { op, .. }) = state.pending.get(&client).copied() {
            state.note(Event::Queued { op });
        }
    }

    /// Records a new connection of a client. If it is to another process than
    /// before, the pending acquire moves to that process.
    pub fn connected(&self, client: u32, place: usize) {
        let mut state = self.state();
        *state.connects.entry(client).or_default() += 1;
        let daemon = state.number_at(place);
        let Some(before) = state.pending.get(&client).copied() else { return };
        if before.daemon != daemon {
            let why = "asked another daemon".to_owned();
            state.note(Event::Refused { op: before.op, why, faulty: false, canceled: false });
            let (op, lock) = (state.next_op(), before.lock);
            state.pending.insert(client, Pending { op, daemon, lock });
            state.note(Event::Acquire { op, client, daemon, lock });
        }
    }

    /// Returns the number of connections of a client.
    #[must_use]
    pub fn connects(&self, client: u32) -> u32 {
        self.state().connects.get(&client).copied().unwrap_or(0)
    }

    /// Records a grant.
    pub fn granted(&self, client: u32, lock: u32, guard: &Arc<Guard>) {
        let mut state = self.state();
        let Some(Pending { op, .. }) = state.pending.remove(&client) else { return };
        let token = guard.token().get();
        state.note(Event::Granted { op, token });
        let guard = Arc::downgrade(guard);
        state.guards.push(Hold { client, lock, token, until: None, lost: false, guard });
        state.record_guards();
    }

    /// Records a refusal.
    pub fn refused(&self, client: u32, error: &Error) {
        let mut state = self.state();
        if let Some(Pending { op, daemon, .. }) = state.pending.remove(&client) {
            let is_service_error =
                matches!(error, Error::Unavailable { .. } | Error::NeedsOperator { .. });
            // A daemon that is shutting down refuses all acquires.
            let faulty = is_service_error && !state.stopping.contains(&daemon);
            state.note(Event::Refused { op, why: error.to_string(), faulty, canceled: false });
        }
    }

    /// Records that a client detected a loss.
    pub fn lost(&self, client: u32, lock: u32, token: u64) {
        let mut state = self.state();
        state.record_guards();
        let same = |hold: &&mut Hold| (hold.client, hold.lock, hold.token) == (client, lock, token);
        let was_recorded =
            state.guards.iter_mut().find(same).map(|hold| replace(&mut hold.lost, true));
        if was_recorded != Some(true) {
            state.note(Event::Lost { client, lock, token });
        }
    }

    /// Records a release. Returns the number of the operation.
    #[must_use]
    pub fn release(&self, client: u32, lock: u32, token: u64) -> u64 {
        let mut state = self.state();
        state.record_guards();
        let op = state.next_op();
        state.note(Event::Release { op, client, lock, token });
        op
    }

    /// Records the death of a client process.
    pub fn client_died(&self, client: u32) {
        let mut state = self.state();
        state.record_guards();
        state.guards.retain(|hold| hold.client != client);
        state.pending.remove(&client);
        state.note(Event::ClientDied { client });
    }

    /// Records a use of the protected resource.
    pub fn use_resource(&self, client: u32, lock: u32, token: u64) {
        let mut state = self.state();
        state.record_guards();
        let highest = state.resource.entry(lock).or_default();
        *highest = (*highest).max(token);
        let accepted = *highest == token;
        state.note(Event::Used { client, lock, token, fenced: true, accepted });
    }

    /// Records the effect of a storage call, from the blob's ETag before and
    /// the blob after it.
    pub fn stored(
        &self,
        caller: Option<u32>,
        call: &Call,
        before: Option<&str>,
        after: Option<&Blob>,
    ) {
        let mut state = self.state();
        let Some(lock) = (0..state.locks).find(|lock| blob_path(*lock) == call.path) else {
            return;
        };
        if let (Operation::Acquire { id, .. }, Some(daemon)) = (&call.operation, caller) {
            state.ids.entry(id.clone()).or_insert(daemon);
        }
        if before != after.map(|blob| blob.etag.as_str()) {
            match (&call.operation, caller) {
                (
                    Operation::SetMetadata { metadata } | Operation::Upload { metadata, .. },
                    Some(daemon),
                ) => {
                    let token = metadata.get("token").and_then(|token| token.parse().ok());
                    state.note(Event::Stored { daemon, lock, token: token.unwrap_or(0) });
                }
                (Operation::Delete, _) => state.note(Event::Deleted { lock }),
                _ => {}
            }
        }
        let lease = after.and_then(|blob| {
            let until = blob.leased_until(time::nanos())?;
            Some((*state.ids.get(blob.lease_id()?)?, until))
        });
        if state.leases.insert(lock, lease) != Some(lease) {
            state.note(match lease {
                Some((daemon, until)) => Event::Leased { daemon, lock, until },
                None => Event::Unleased { lock },
            });
        }
    }
}

//! What happens, as the checker wants it.
//!
//! Processes note what they do at the moment they do it. What daemons and
//! clients count on is looked at after each step, and before each deed of a
//! client. Nothing that one host does reaches another in the same step: so the
//! order by time, and within one moment that of the notes, is that of causes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::replace,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use leasehold::driver::Driver;
use leasehold_checker::{Bounds, Entry, Event, History, Nanos};
use leasehold_client::{Error, Guard};
use leasehold_runtime::simulation::Peek;
use leasehold_simulated_storage::storage::{Act, Blob, Call};
use leasehold_simulator::sim_state::{blob_path, lock_name};
use tokio::sync::Notify;

use crate::time;

/// How many tokens a hold has.
const TOKENS: u64 = 1024;

/// A daemon that runs.
#[derive(Clone)]
pub struct Running {
    /// The number of its process: no two have the same.
    pub number: u32,
    /// What it consists of.
    pub driver: Driver,
    /// Tells it to stop.
    pub stop: Arc<Notify>,
}

/// An acquire that is not answered yet.
#[derive(Clone, Copy)]
struct Pending {
    op: u64,
    daemon: u32,
    lock: u32,
}

/// A guard that a client has.
struct Hold {
    client: u32,
    lock: u32,
    token: u64,
    /// Until when it was last noted to be valid.
    until: Option<Nanos>,
    /// That it is lost has been noted.
    lost: bool,
    guard: Weak<Guard>,
}

/// Everything that is noted.
#[derive(Default)]
pub struct Record(Mutex<State>);

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    locks: u32,
    daemons: u32,
    clients: u32,
    ops: u64,
    /// Who runs at each place.
    running: BTreeMap<usize, Running>,
    /// Places of all daemons that were ever started.
    started: BTreeMap<u32, usize>,
    /// Where each client's daemon is, and what it asks for.
    places: BTreeMap<u32, usize>,
    pending: BTreeMap<u32, Pending>,
    /// How often each client has connected.
    connects: BTreeMap<u32, u32>,
    /// Daemons that were told to stop.
    stopping: BTreeSet<u32>,
    guards: Vec<Hold>,
    /// What a daemon was last seen to count on, by daemon and lock.
    holds: BTreeMap<(u32, u32), (u64, Nanos)>,
    /// What was last noted of the lease on a lock's blob.
    leases: BTreeMap<u32, Option<(u32, Nanos)>>,
    /// Which daemon made up a lease id.
    ids: HashMap<String, u32>,
    /// The highest token that the guarded resource of each lock has seen.
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

    fn look_at_daemons(&mut self) {
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
                    let last = first + TOKENS - 1;
                    self.note(Event::Holds { daemon, lock, first, last, until });
                } else {
                    self.holds.remove(&(daemon, lock));
                    self.note(Event::LetGo { daemon, lock });
                }
            }
        }
    }

    /// Looks without changing anything: a look of the library's own would mark
    /// losses before the client has found out about them.
    fn look_at_clients(&mut self) {
        self.guards.retain(|hold| hold.guard.strong_count() > 0);
        let mut news = Vec::new();
        for hold in &mut self.guards {
            let Some(guard) = hold.guard.upgrade() else { continue };
            // One that the session has forgotten was given up.
            let seen = guard.peek().map(|(deadline, valid)| (time::true_time(deadline), valid));
            let (until, valid) = seen.unwrap_or((time::nanos(), false));
            if hold.lost && !valid {
                continue;
            }
            let Hold { client, lock, token, .. } = *hold;
            // What it has lost, it is not to believe in again: that is noted too.
            if hold.until.replace(until) != Some(until) || hold.lost {
                news.push(Event::Valid { client, lock, token, until });
            }
            hold.lost = !valid;
            if hold.lost {
                news.push(Event::Lost { client, lock, token });
            }
        }
        for event in news {
            self.note(event);
        }
    }
}

impl Record {
    /// Nothing has happened yet to these locks.
    #[must_use]
    pub fn new(locks: u32) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { locks, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something happened.
    pub fn note(&self, event: Event) {
        self.state().note(event);
    }

    /// Notes what daemons and clients count on, as far as it has changed.
    pub fn look(&self) {
        let mut state = self.state();
        state.look_at_daemons();
        state.look_at_clients();
    }

    /// All of it, in order.
    #[must_use]
    pub fn history(&self, bounds: Bounds) -> History {
        let mut entries = self.state().entries.clone();
        entries.sort_by_key(|entry| entry.at);
        History { bounds, entries }
    }

    /// The number of a new daemon.
    #[must_use]
    pub fn next_daemon(&self) -> u32 {
        let mut state = self.state();
        state.daemons += 1;
        state.daemons - 1
    }

    /// The number of a new client of the daemon at a place.
    #[must_use]
    pub fn next_client(&self, place: usize) -> u32 {
        let mut state = self.state();
        let number = state.clients;
        state.clients += 1;
        state.places.insert(number, place);
        number
    }

    /// A daemon runs at a place.
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

    /// The daemon at a place is gone, in whatever way.
    pub fn ended(&self, place: usize) {
        let mut state = self.state();
        state.look_at_daemons();
        let ended = state.running.remove(&place);
        if let Some(Running { number: daemon, .. }) = ended {
            state.note(Event::DaemonDied { daemon });
        }
    }

    /// Tells the daemon at a place to stop.
    ///
    /// # Panics
    /// If none runs there.
    pub fn stop(&self, place: usize) {
        let mut state = self.state();
        let Running { number, stop, .. } = state.running[&place].clone();
        state.stopping.insert(number);
        stop.notify_one();
    }

    /// The daemon that runs at a place.
    #[must_use]
    pub fn running(&self, place: usize) -> Option<Running> {
        self.state().running.get(&place).cloned()
    }

    /// A client asks for a lock.
    pub fn acquire(&self, client: u32, lock: u32) {
        let mut state = self.state();
        let daemon = state.places.get(&client).map_or(u32::MAX, |place| state.number_at(*place));
        let op = state.next_op();
        state.pending.insert(client, Pending { op, daemon, lock });
        state.note(Event::Acquire { op, client, daemon, lock });
    }

    /// A client was told that it waits.
    pub fn queued(&self, client: u32) {
        let mut state = self.state();
        if let Some(Pending { op, .. }) = state.pending.get(&client).copied() {
            state.note(Event::Queued { op });
        }
    }

    /// A client has a new connection. If that is to another process than before,
    /// what it asked that one for, it will ask this one for.
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

    /// How often a client has connected.
    #[must_use]
    pub fn connects(&self, client: u32) -> u32 {
        self.state().connects.get(&client).copied().unwrap_or(0)
    }

    /// A client was granted a lock.
    pub fn granted(&self, client: u32, lock: u32, guard: &Arc<Guard>) {
        let mut state = self.state();
        let Some(Pending { op, .. }) = state.pending.remove(&client) else { return };
        let token = guard.token().get();
        state.note(Event::Granted { op, token });
        let guard = Arc::downgrade(guard);
        state.guards.push(Hold { client, lock, token, until: None, lost: false, guard });
        state.look_at_clients();
    }

    /// A client was not granted a lock.
    pub fn refused(&self, client: u32, error: &Error) {
        let mut state = self.state();
        if let Some(Pending { op, daemon, .. }) = state.pending.remove(&client) {
            let could_not =
                matches!(error, Error::Unavailable { .. } | Error::NeedsOperator { .. });
            // Who is told to stop refuses whom it could serve.
            let faulty = could_not && !state.stopping.contains(&daemon);
            state.note(Event::Refused { op, why: error.to_string(), faulty, canceled: false });
        }
    }

    /// A client learnt that it lost a lock.
    pub fn lost(&self, client: u32, lock: u32, token: u64) {
        let mut state = self.state();
        state.look_at_clients();
        let same = |hold: &&mut Hold| (hold.client, hold.lock, hold.token) == (client, lock, token);
        let noted = state.guards.iter_mut().find(same).map(|hold| replace(&mut hold.lost, true));
        if noted != Some(true) {
            state.note(Event::Lost { client, lock, token });
        }
    }

    /// A client lets go. Gives the number of that operation.
    #[must_use]
    pub fn release(&self, client: u32, lock: u32, token: u64) -> u64 {
        let mut state = self.state();
        state.look_at_clients();
        let op = state.next_op();
        state.note(Event::Release { op, client, lock, token });
        op
    }

    /// A client's process is gone.
    pub fn client_died(&self, client: u32) {
        let mut state = self.state();
        state.look_at_clients();
        state.guards.retain(|hold| hold.client != client);
        state.pending.remove(&client);
        state.note(Event::ClientDied { client });
    }

    /// A client uses the resource that a lock guards, with its token.
    pub fn use_resource(&self, client: u32, lock: u32, token: u64) {
        let mut state = self.state();
        state.look_at_clients();
        let highest = state.resource.entry(lock).or_default();
        *highest = (*highest).max(token);
        let accepted = *highest == token;
        state.note(Event::Used { client, lock, token, fenced: true, accepted });
    }

    /// The storage has done what a daemon asked for: the blob's version before,
    /// and the blob after that.
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
        if let (Act::Acquire { id, .. }, Some(daemon)) = (&call.act, caller) {
            state.ids.entry(id.clone()).or_insert(daemon);
        }
        if before != after.map(|blob| blob.etag.as_str()) {
            match (&call.act, caller) {
                (Act::SetMetadata { metadata } | Act::Upload { metadata, .. }, Some(daemon)) => {
                    let token = metadata.get("token").and_then(|token| token.parse().ok());
                    state.note(Event::Stored { daemon, lock, token: token.unwrap_or(0) });
                }
                (Act::Delete, _) => state.note(Event::Deleted { lock }),
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

//! State of a simulation and recorder of its history.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher as _},
    rc::Rc,
    sync::Weak,
};

use leasehold::driver::Driver;
use leasehold_checker::{Entry, Event, History};
use leasehold_simulated_storage::storage::{Answer, Storage};
use leasehold_types::{LockName, TokenRange};

use crate::{
    client::Held,
    link::Connection,
    plan::Plan,
    repeated_release::Releases,
    rng::Rng,
    wire::{PendingCrash, StorageLink},
    world::{BEGINNING, Machine, Nanos, SECOND, World, here},
};

mod monitor;
mod requests;

/// Place of a daemon; after a crash, another daemon runs there.
#[derive(Default)]
pub struct Place {
    /// Running daemon, if any.
    pub daemon: Option<Running>,
    /// Number of the running or last daemon.
    pub latest: u32,
    /// True if that daemon is stopping or has stopped: it no longer grants
    /// locks.
    pub stopping: bool,
    /// Number of the daemon shut down last.
    pub draining: Option<u32>,
    /// Numbers of all daemons that were started here.
    pub numbers: Vec<u32>,
    /// Last token range of the store by lock, with the number of the daemon
    /// that received it. Used by mutant 10.
    pub tokens: HashMap<LockName, (u32, TokenRange)>,
    /// Start of the running daemon.
    pub since: Nanos,
    /// Link to the storage.
    pub storage_link: StorageLink,
    /// Last answers of the storage to acquires and renewals of leases, newest
    /// first.
    pub lease_answers: VecDeque<Answer>,
}

/// Running daemon.
#[derive(Clone)]
pub struct Running {
    /// Unique number of the process.
    pub number: u32,
    /// Machine on which it runs.
    pub machine: Machine,
    /// Driver of the daemon.
    pub driver: Driver,
}

/// Client process.
pub struct Process {
    /// Machine on which it runs.
    pub machine: Machine,
    /// Place of its daemon.
    pub place: usize,
    /// Guards that it has, with their last recorded deadlines.
    pub holds: Vec<Hold>,
    /// Pending acquires.
    pub pending: Vec<Pending>,
    /// True if it has closed its session and continues under another number.
    pub closed: bool,
}

/// Pending acquire.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Identifies the acquire in the client.
    pub ticket: u64,
    /// Number in the history, and daemon at which it waits. `None` while that
    /// daemon has stopped and the client has not found another.
    pub request: Option<(u64, u32)>,
    /// Requested lock.
    pub lock: u32,
    /// Value of a campaign.
    pub value: Option<String>,
}

/// Grant that a simulated client uses.
pub struct Hold {
    /// Lock of the grant.
    pub lock: u32,
    /// Token of the grant.
    pub token: u64,
    /// Last recorded deadline.
    pub until: Option<Nanos>,
    /// True if it was found invalid.
    pub lost: bool,
    /// Guard in the client library.
    pub guard: Weak<Held>,
}

/// State of a simulation.
pub struct SimState {
    /// World of the simulation.
    pub world: Rc<World>,
    /// Plan of the seed.
    pub plan: Plan,
    /// Simulated storage account.
    pub storage: RefCell<Storage>,
    /// Disk of a daemon on the embedded store.
    pub disk: RefCell<crate::embedded::disk::Disk>,
    /// Daemons on the embedded store.
    pub embedded: crate::embedded::daemon::Daemons,
    /// Places of daemons.
    pub places: RefCell<Vec<Place>>,
    /// All clients that were started, by number.
    pub clients: RefCell<Vec<Process>>,
    /// Connections between clients and daemons.
    pub connections: RefCell<Vec<Connection>>,
    /// Number of faults that cut the link between a client and a place:
    /// requests, answers.
    pub cut: RefCell<BTreeMap<(u32, usize), (u32, u32)>>,
    /// Scheduled crash of a daemon.
    pub pending_crash: RefCell<Option<PendingCrash>>,
    /// Fault that drops the next record write and breaks its lease.
    pub break_during_write: Cell<Option<usize>>,
    /// Faults by which the storage's clock is ahead, in seconds.
    pub ahead: RefCell<Vec<(usize, u64)>>,
    /// Machines whose clocks drift beyond the tolerated rate.
    broken: RefCell<Vec<Machine>>,
    /// Releases that daemons have received. For mutant 12.
    pub releases: RefCell<Releases>,
    /// Random numbers of the simulation, independent of processes.
    pub rng: RefCell<Rng>,
    record: RefCell<Record>,
    daemons: Cell<u32>,
    ops: Cell<u64>,
    /// True if each step is printed.
    trace: bool,
}

#[derive(Default)]
struct Record {
    history: History,
    counts: BTreeMap<&'static str, u64>,
    hash: DefaultHasher,
    /// States of locks that occurred, one bit each.
    states: u32,
    /// Last recorded hold, by daemon and lock: first token and deadline.
    holds: HashMap<(u32, u32), (u64, Nanos)>,
    /// Last recorded lease of a lock's blob: daemon and expiry.
    leases: HashMap<u32, Option<(u32, Nanos)>>,
    /// Daemon that generated a lease ID.
    ids: HashMap<String, u32>,
    /// Highest token ever stored with a lock.
    highest: HashMap<u32, u64>,
    /// Highest token seen by the fenced resource of each lock.
    resource: HashMap<u32, u64>,
}

thread_local! {
    static SIM: RefCell<Option<Rc<SimState>>> = const { RefCell::new(None) };
}

/// Returns the simulation of this thread.
///
/// # Panics
/// Outside of a simulation.
#[must_use]
#[allow(clippy::expect_used, reason = "a bug in the simulation")]
pub fn sim() -> Rc<SimState> {
    SIM.with_borrow(|sim| sim.clone()).expect("inside of a simulation")
}

/// Records an event.
pub fn record(event: Event) {
    sim().record(event);
}

/// Increments a counter.
pub fn count(what: &'static str) {
    *sim().record.borrow_mut().counts.entry(what).or_default() += 1;
}

/// Returns the name of a lock.
#[must_use]
pub fn lock_name(lock: u32) -> String {
    format!("lock-{lock}")
}

/// Returns the path of a lock's blob.
#[must_use]
pub fn blob_path(lock: u32) -> String {
    format!("locks/default/lock-{lock}")
}

/// Returns the lock with this name.
#[must_use]
pub fn lock_number(name: &str) -> Option<u32> {
    name.strip_prefix("lock-")?.parse().ok()
}

/// Returns the lock whose blob is at this path.
#[must_use]
pub fn lock_of(path: &str) -> Option<u32> {
    lock_number(path.strip_prefix("locks/default/")?)
}

/// Result of a simulation.
pub struct Outcome {
    /// Recorded history.
    pub history: History,
    /// Counters by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// States of locks that occurred, one bit each; see [`state_name`].
    pub states: u32,
    /// Hash of the trace; equal for equal runs.
    pub hash: u64,
}

/// Number of states of a lock.
pub const STATES: u32 = 5 * 3 * 2;

/// Returns the state of a bit.
#[must_use]
pub fn state_name(bit: u32) -> String {
    let lease = ["no lease", "acquiring", "waiting", "held", "releasing"][(bit / 6) as usize];
    let grant = ["no grant", "granted", "grant ending"][(bit / 2 % 3) as usize];
    let queue = ["no waiter", "waiter"][(bit % 2) as usize];
    format!("{lease}, {grant}, {queue}")
}

impl SimState {
    /// Sets up a simulation in the world of this thread.
    pub fn enter(plan: Plan, rng: Rng, trace: bool) -> Rc<Self> {
        let (behavior, bounds) = (plan.behavior, plan.bounds());
        let record =
            Record { history: History { bounds, entries: Vec::new() }, ..Record::default() };
        let sim = Rc::new(Self {
            world: here(),
            plan,
            storage: RefCell::new(Storage::new(behavior)),
            disk: RefCell::default(),
            embedded: crate::embedded::daemon::Daemons::default(),
            places: RefCell::default(),
            clients: RefCell::default(),
            connections: RefCell::default(),
            cut: RefCell::default(),
            pending_crash: RefCell::default(),
            break_during_write: Cell::default(),
            ahead: RefCell::default(),
            broken: RefCell::default(),
            releases: RefCell::default(),
            rng: RefCell::new(rng),
            record: RefCell::new(record),
            daemons: Cell::new(0),
            ops: Cell::new(0),
            trace,
        });
        SIM.set(Some(Rc::clone(&sim)));
        sim
    }

    /// Ends the simulation and returns its result.
    pub fn leave(&self) -> Outcome {
        // Connections and drivers refer to each other.
        self.places.borrow_mut().clear();
        self.embedded.clear();
        self.connections.borrow_mut().clear();
        self.releases.take();
        SIM.set(None);
        self.mix(&self.rng.borrow_mut().bits());
        let record = self.record.take();
        let Record { history, counts, states, hash, .. } = record;
        Outcome { history, counts, states, hash: hash.finish() }
    }

    /// Returns the number of a new daemon.
    pub fn next_daemon(&self) -> u32 {
        self.daemons.replace(self.daemons.get() + 1)
    }

    /// Returns the number of a new operation.
    pub fn next_op(&self) -> u64 {
        self.ops.replace(self.ops.get() + 1)
    }

    /// Returns the date of the storage service, in seconds since 1970.
    #[must_use]
    pub fn date(&self) -> u64 {
        let ahead = self.ahead.borrow().iter().map(|(_, by)| *by).max();
        self.correct_date() + ahead.unwrap_or(0)
    }

    /// Returns the correct date.
    #[must_use]
    pub fn correct_date(&self) -> u64 {
        BEGINNING + self.world.now() / SECOND
    }

    /// Returns the epoch of the highest token ever stored with a lock.
    #[must_use]
    pub fn epoch(&self, lock: u32) -> u64 {
        self.record.borrow().highest.get(&lock).map_or(0, |token| token >> 20)
    }

    /// Prints a step if tracing is enabled.
    #[allow(clippy::print_stdout, reason = "output of a command")]
    pub fn trace(&self, step: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>16.6} s  {}", self.world.now() as f64 / 1e9, step());
        }
    }

    /// Records an event.
    pub fn record(&self, event: Event) {
        let at = self.world.now();
        self.trace(|| event.to_string());
        let mut record = self.record.borrow_mut();
        at.hash(&mut record.hash);
        event.hash(&mut record.hash);
        if let &Event::Stored { lock, token, .. } = &event {
            let highest = record.highest.entry(lock).or_default();
            *highest = (*highest).max(token);
        }
        record.history.entries.push(Entry { at, event });
    }

    /// Adds a value to the trace hash.
    pub fn mix(&self, what: &impl Hash) {
        what.hash(&mut self.record.borrow_mut().hash);
    }

    /// Returns the running daemon of a place.
    #[must_use]
    pub fn running(&self, place: usize) -> Option<Running> {
        self.places.borrow()[place].daemon.clone()
    }

    /// Uses the fenced resource. Returns whether it accepts the token.
    pub fn use_resource(&self, lock: u32, token: u64) -> bool {
        let mut record = self.record.borrow_mut();
        let highest = record.resource.entry(lock).or_default();
        *highest = (*highest).max(token);
        *highest == token
    }
}

//! What there is in a simulated world, and what has happened in it.

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

mod asked;
mod seen;

/// A place where a daemon runs; after a crash another does.
#[derive(Default)]
pub struct Place {
    /// The one that runs there, if one does.
    pub daemon: Option<Running>,
    /// The number of the one that runs there, or was the last to.
    pub latest: u32,
    /// Whether that one stops or has stopped, and grants nothing any more.
    pub stopping: bool,
    /// Number of the daemon that was last told to stop.
    pub draining: Option<u32>,
    /// Numbers of all daemons that were ever started here.
    pub numbers: Vec<u32>,
    /// Tokens that the store gave out here last, by lock, and the number of the
    /// daemon that received them. For mutant 10.
    pub tokens: HashMap<LockName, (u32, TokenRange)>,
    /// Since when the one that runs there does.
    pub since: Nanos,
    /// Its way to the storage.
    pub storage_link: StorageLink,
    /// What the storage answered last when asked for a lease or a renewal, the
    /// latest first.
    pub heard: VecDeque<Answer>,
}

/// A daemon that runs.
#[derive(Clone)]
pub struct Running {
    /// The number of its process: no two have the same.
    pub number: u32,
    /// Where.
    pub machine: Machine,
    /// What it consists of.
    pub driver: Driver,
}

/// A client process.
pub struct Process {
    /// Where.
    pub machine: Machine,
    /// The place of the daemon that it uses.
    pub place: usize,
    /// What it holds, by lock and token, and until when it was last seen to
    /// count on it.
    pub holds: Vec<Hold>,
    /// What it asks for.
    pub pending: Vec<Pending>,
    /// It has closed its session, and goes on under another number.
    pub closed: bool,
}

/// An acquire that is not answered yet.
#[derive(Clone, Debug)]
pub struct Pending {
    /// What the client knows it by.
    pub ticket: u64,
    /// Its number in the history, and the daemon that it waits at; none while that
    /// one has stopped and no other was found.
    pub asked: Option<(u64, u32)>,
    /// For which lock.
    pub lock: u32,
    /// The value that it campaigns with, if it does.
    pub value: Option<String>,
}

/// A guard that a client has.
pub struct Hold {
    /// Which lock.
    pub lock: u32,
    /// Its token.
    pub token: u64,
    /// Until when it was last recorded to be valid.
    pub until: Option<Nanos>,
    /// Whether it was seen not to be valid any more.
    pub lost: bool,
    /// The guard itself.
    pub guard: Weak<Held>,
}

/// All of it.
pub struct SimState {
    /// Where it is.
    pub world: Rc<World>,
    /// What is to happen.
    pub plan: Plan,
    /// The storage account.
    pub storage: RefCell<Storage>,
    /// The disk of a daemon on the embedded store.
    pub disk: RefCell<crate::embedded::disk::Disk>,
    /// Daemons on the embedded store.
    pub embedded: crate::embedded::daemon::Daemons,
    /// Where daemons run.
    pub places: RefCell<Vec<Place>>,
    /// All clients that ever were, by their number.
    pub clients: RefCell<Vec<Process>>,
    /// The connections between clients and daemons.
    pub connections: RefCell<Vec<Connection>>,
    /// By how many faults the ways between clients and places are cut: for
    /// requests, for answers.
    pub cut: RefCell<BTreeMap<(u32, usize), (u32, u32)>>,
    /// A crash that waits for its moment.
    pub pending_crash: RefCell<Option<PendingCrash>>,
    /// The fault by which the next record that is written gets lost, with its lease.
    pub snatch: Cell<Option<usize>>,
    /// By which faults the storage's clock is ahead, and by how many seconds.
    pub ahead: RefCell<Vec<(usize, u64)>>,
    /// The machines whose clocks are worse than what is assumed.
    broken: RefCell<Vec<Machine>>,
    /// Releases that daemons have received. For mutant 12.
    pub releases: RefCell<Releases>,
    /// For decisions that no process makes.
    pub rng: RefCell<Rng>,
    record: RefCell<Record>,
    daemons: Cell<u32>,
    ops: Cell<u64>,
    /// Whether each step is printed.
    trace: bool,
}

#[derive(Default)]
struct Record {
    history: History,
    counts: BTreeMap<&'static str, u64>,
    hash: DefaultHasher,
    /// Which states locks were in, one bit each.
    states: u32,
    /// What a daemon was last seen to count on, by daemon and lock.
    holds: HashMap<(u32, u32), (u64, Nanos)>,
    /// What was last recorded of the lease on a lock's blob.
    leases: HashMap<u32, Option<(u32, Nanos)>>,
    /// Which daemon made up a lease id.
    ids: HashMap<String, u32>,
    /// The highest token that was ever stored with a lock.
    highest: HashMap<u32, u64>,
    /// The highest token that the guarded resource of each lock has seen.
    resource: HashMap<u32, u64>,
}

thread_local! {
    static SIM: RefCell<Option<Rc<SimState>>> = const { RefCell::new(None) };
}

/// The simulation of this thread.
///
/// # Panics
/// Outside of a simulation.
#[must_use]
#[allow(clippy::expect_used, reason = "a mistake in the simulation itself")]
pub fn sim() -> Rc<SimState> {
    SIM.with_borrow(|sim| sim.clone()).expect("inside of a simulation")
}

/// Notes that something happened.
pub fn record(event: Event) {
    sim().record(event);
}

/// Counts something worth counting.
pub fn count(what: &'static str) {
    *sim().record.borrow_mut().counts.entry(what).or_default() += 1;
}

/// The name of a lock.
#[must_use]
pub fn lock_name(lock: u32) -> String {
    format!("lock-{lock}")
}

/// The path of its blob.
#[must_use]
pub fn blob_path(lock: u32) -> String {
    format!("locks/default/lock-{lock}")
}

/// The lock of this name.
#[must_use]
pub fn lock_number(name: &str) -> Option<u32> {
    name.strip_prefix("lock-")?.parse().ok()
}

/// The lock whose blob is at this path.
#[must_use]
pub fn lock_of(path: &str) -> Option<u32> {
    lock_number(path.strip_prefix("locks/default/")?)
}

/// What is left of a simulation.
pub struct Outcome {
    /// What happened.
    pub history: History,
    /// How often what was counted.
    pub counts: BTreeMap<&'static str, u64>,
    /// Which states locks were in, one bit each: see [`state_name`].
    pub states: u32,
    /// The same for the same course of events.
    pub hash: u64,
}

/// How many states there are.
pub const STATES: u32 = 5 * 3 * 2;

/// The state that a bit stands for.
#[must_use]
pub fn state_name(bit: u32) -> String {
    let lease = ["no lease", "acquiring", "waiting", "held", "releasing"][(bit / 6) as usize];
    let grant = ["no grant", "granted", "grant ending"][(bit / 2 % 3) as usize];
    let queue = ["nobody waits", "somebody waits"][(bit % 2) as usize];
    format!("{lease}, {grant}, {queue}")
}

impl SimState {
    /// Sets it up in this thread's world.
    pub fn enter(plan: Plan, rng: Rng, trace: bool) -> Rc<Self> {
        let (habits, bounds) = (plan.habits, plan.bounds());
        let record =
            Record { history: History { bounds, entries: Vec::new() }, ..Record::default() };
        let sim = Rc::new(Self {
            world: here(),
            plan,
            storage: RefCell::new(Storage::new(habits)),
            disk: RefCell::default(),
            embedded: crate::embedded::daemon::Daemons::default(),
            places: RefCell::default(),
            clients: RefCell::default(),
            connections: RefCell::default(),
            cut: RefCell::default(),
            pending_crash: RefCell::default(),
            snatch: Cell::default(),
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

    /// Ends it, and gives what has happened.
    pub fn leave(&self) -> Outcome {
        // Connections and drivers would keep each other alive.
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

    /// The number of a new daemon.
    pub fn next_daemon(&self) -> u32 {
        self.daemons.replace(self.daemons.get() + 1)
    }

    /// The number of a new operation.
    pub fn next_op(&self) -> u64 {
        self.ops.replace(self.ops.get() + 1)
    }

    /// What the storage's clock shows, in seconds since 1970.
    #[must_use]
    pub fn date(&self) -> u64 {
        let ahead = self.ahead.borrow().iter().map(|(_, by)| *by).max();
        self.right_date() + ahead.unwrap_or(0)
    }

    /// What it shows when it is right.
    #[must_use]
    pub fn right_date(&self) -> u64 {
        BEGINNING + self.world.now() / SECOND
    }

    /// The second of the highest token that was ever stored with a lock.
    #[must_use]
    pub fn epoch(&self, lock: u32) -> u64 {
        self.record.borrow().highest.get(&lock).map_or(0, |token| token >> 20)
    }

    /// Prints a step, if that is wanted.
    #[allow(clippy::print_stdout, reason = "a command's")]
    pub fn trace(&self, step: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>16.6} s  {}", self.world.now() as f64 / 1e9, step());
        }
    }

    /// Notes that something happened.
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

    /// The same course of events mixes the same into its trace.
    pub fn mix(&self, what: &impl Hash) {
        what.hash(&mut self.record.borrow_mut().hash);
    }

    /// The daemon that runs at a place.
    #[must_use]
    pub fn running(&self, place: usize) -> Option<Running> {
        self.places.borrow()[place].daemon.clone()
    }

    /// The guarded resource: says whether it takes what comes with this token.
    pub fn use_resource(&self, lock: u32, token: u64) -> bool {
        let mut record = self.record.borrow_mut();
        let highest = record.resource.entry(lock).or_default();
        *highest = (*highest).max(token);
        *highest == token
    }
}

//! What there is in a simulated world, and what has happened in it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, VecDeque},
    rc::Rc,
    sync::Weak,
};

use crate::client::Held;
use leasehold::driver::Driver;
use leasehold_check::{Entry, Event, History};

use crate::{
    dice::Dice,
    link::Connection,
    plan::Plan,
    storage::{Act, Answer, Call, Storage},
    wire::{Road, Trap},
    world::{BEGINNING, Machine, Nanos, SECOND, World, here},
};

/// A place where a daemon runs; after a crash another does.
#[derive(Default)]
pub struct Place {
    /// The one that runs there, if one does.
    pub daemon: Option<Running>,
    /// The number of the one that runs there, or was the last to.
    pub latest: u32,
    /// Its way to the storage.
    pub road: Road,
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
    pub pending: Option<Pending>,
}

/// An acquire that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Its number.
    pub op: u64,
    /// The daemon that it was made through.
    pub daemon: u32,
    /// For which lock.
    pub lock: u32,
}

/// A guard that a client has.
pub struct Hold {
    /// Which lock.
    pub lock: u32,
    /// Its token.
    pub token: u64,
    /// Until when it was last recorded to be valid.
    pub until: Nanos,
    /// Whether it is lost.
    pub lost: bool,
    /// The guard itself.
    pub guard: Weak<Held>,
}

/// All of it.
pub struct Scene {
    /// Where it is.
    pub world: Rc<World>,
    /// What is to happen.
    pub plan: Plan,
    /// The storage account.
    pub storage: RefCell<Storage>,
    /// Where daemons run.
    pub places: RefCell<Vec<Place>>,
    /// All clients that ever were, by their number.
    pub clients: RefCell<Vec<Process>>,
    /// The connections between clients and daemons.
    pub connections: RefCell<Vec<Connection>>,
    /// Which ways between clients and places are cut: requests, answers.
    pub cut: RefCell<BTreeMap<(u32, usize), (bool, bool)>>,
    /// A crash that waits for its moment.
    pub trap: RefCell<Option<Trap>>,
    /// How far the storage's clock is ahead, in seconds.
    pub date_ahead: Cell<u64>,
    /// For decisions that no process makes.
    pub dice: RefCell<Dice>,
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
    hash: u64,
    /// Which states locks were in, one bit each.
    states: u32,
    /// What a daemon was last seen to count on, by daemon and lock.
    holds: HashMap<(u32, u32), (u64, Nanos)>,
    /// What was last recorded of the lease on a lock's blob.
    leases: HashMap<u32, Option<(u32, Nanos)>>,
    /// Which daemon made up a lease id.
    ids: HashMap<String, u32>,
    /// The highest token that the guarded resource of each lock has seen.
    resource: HashMap<u32, u64>,
}

thread_local! {
    static SCENE: RefCell<Option<Rc<Scene>>> = const { RefCell::new(None) };
}

/// The scene of this thread.
///
/// # Panics
/// Outside of a simulation.
#[must_use]
#[allow(clippy::expect_used, reason = "a mistake in the simulation itself")]
pub fn scene() -> Rc<Scene> {
    SCENE.with_borrow(|scene| scene.clone()).expect("inside of a simulation")
}

/// Notes that something happened.
pub fn record(event: Event) {
    scene().record(event);
}

/// Counts something worth counting.
pub fn count(what: &'static str) {
    *scene().record.borrow_mut().counts.entry(what).or_default() += 1;
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

fn lock_of(path: &str) -> Option<u32> {
    path.strip_prefix("locks/default/lock-")?.parse().ok()
}

/// What is left of a scene.
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

impl Scene {
    /// Sets it up in this thread's world.
    pub fn enter(plan: Plan, dice: Dice, trace: bool) -> Rc<Self> {
        let (habits, bounds) = (plan.habits, plan.bounds());
        let record =
            Record { history: History { bounds, entries: Vec::new() }, ..Record::default() };
        let scene = Rc::new(Self {
            world: here(),
            plan,
            storage: RefCell::new(Storage::new(habits)),
            places: RefCell::default(),
            clients: RefCell::default(),
            connections: RefCell::default(),
            cut: RefCell::default(),
            trap: RefCell::default(),
            date_ahead: Cell::new(0),
            dice: RefCell::new(dice),
            record: RefCell::new(record),
            daemons: Cell::new(0),
            ops: Cell::new(0),
            trace,
        });
        SCENE.set(Some(Rc::clone(&scene)));
        scene
    }

    /// Ends it, and gives what has happened.
    pub fn leave(&self) -> Outcome {
        // Connections and drivers would keep each other alive.
        self.places.borrow_mut().clear();
        self.connections.borrow_mut().clear();
        SCENE.set(None);
        let record = self.record.take();
        let Record { history, counts, states, hash, .. } = record;
        Outcome { history, counts, states, hash }
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
        BEGINNING + self.world.now() / SECOND + self.date_ahead.get()
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
        record.mix(at);
        record.mix(event_number(&event));
        record.history.entries.push(Entry { at, event });
    }

    /// The same course of events mixes the same numbers.
    pub fn mix(&self, number: u64) {
        self.record.borrow_mut().mix(number);
    }

    /// The daemon that runs at a place.
    #[must_use]
    pub fn running(&self, place: usize) -> Option<Running> {
        self.places.borrow()[place].daemon.clone()
    }

    /// Carries a call out at the storage, and notes what that changes.
    pub fn apply(&self, daemon: Option<u32>, call: &Call) -> Answer {
        let now = self.world.now();
        let date = self.date();
        let stored = |storage: &Storage| {
            let blob = storage.blob(&call.path)?;
            let token = blob.metadata.get("token").and_then(|token| token.parse().ok());
            Some((blob.etag.clone(), token.unwrap_or(0)))
        };
        let before = stored(&self.storage.borrow());
        let answer = self.storage.borrow_mut().answer(call, now, date);
        self.mix(u64::from(answer.status));
        self.trace(|| {
            let (status, code) = (answer.status, answer.code);
            format!("    daemon {daemon:?}: {:?} {} -> {status} {code}", call.act, call.path)
        });
        let Some(lock) = lock_of(&call.path) else { return answer };
        if let (Act::Acquire { id, .. }, Some(daemon)) = (&call.act, daemon) {
            self.record.borrow_mut().ids.entry(id.clone()).or_insert(daemon);
        }
        let after = stored(&self.storage.borrow());
        match (&before, &after, daemon) {
            // Whoever notes something with a record leaves its token alone.
            (Some((_, old)), Some((_, token)), Some(daemon)) if old != token => {
                self.record(Event::Stored { daemon, lock, token: *token });
            }
            (None, Some((_, token)), Some(daemon)) => {
                self.record(Event::Stored { daemon, lock, token: *token });
            }
            (Some(_), None, _) => {
                count("storage: idle blob collected");
                self.record(Event::Deleted { lock });
            }
            _ => {}
        }
        self.note_lease(lock);
        answer
    }

    /// A call was carried out whose answer nobody waits for, perhaps long after it
    /// was made: a lease that came of it is nobody's, and must run out.
    pub fn unasked(&self, call: &Call, answer: &Answer) {
        let leases = matches!(call.act, Act::Acquire { .. } | Act::Renew { .. });
        let until = {
            let storage = self.storage.borrow();
            storage.blob(&call.path).and_then(|blob| blob.leased_until(self.world.now()))
        };
        if let Some(until) = until.filter(|_| leases && answer.status < 300) {
            let what = format!("a lease of nobody's until {until}");
            self.record(Event::Disturbed { what: what.clone() });
            self.world.at(until, move || record(Event::Undisturbed { what }));
        }
    }

    /// Notes who has the lease on a lock's blob, if that has changed.
    pub fn note_lease(&self, lock: u32) {
        let now = self.world.now();
        let lease = {
            let storage = self.storage.borrow();
            let record = self.record.borrow();
            storage.blob(&blob_path(lock)).and_then(|blob| {
                let until = blob.leased_until(now)?;
                Some((*record.ids.get(blob.lease_id()?)?, until))
            })
        };
        if self.record.borrow_mut().leases.insert(lock, lease) != Some(lease) {
            match lease {
                Some((daemon, until)) => self.record(Event::Leased { daemon, lock, until }),
                None => self.record(Event::Unleased { lock }),
            }
        }
    }

    /// Notes what the process on a machine counts on, if that has changed.
    pub fn look_at(&self, machine: Machine) {
        if self.world.is_paused(machine) {
            return;
        }
        let daemon = {
            let places = self.places.borrow();
            let mut running = places.iter().filter_map(|place| place.daemon.as_ref());
            running.find(|running| running.machine == machine).cloned()
        };
        match daemon {
            Some(daemon) => self.look_at_daemon(&daemon),
            None => self.look_at_client(machine),
        }
    }

    fn look_at_daemon(&self, daemon: &Running) {
        let clocks = self.world.clocks(daemon.machine);
        for lock in 0..self.plan.locks {
            let name = lock_name(lock);
            if let Some((lease, grant, waited)) = daemon.driver.lock_state(&name) {
                let state = (lease * 3 + grant) * 2 + u8::from(waited);
                self.record.borrow_mut().states |= 1 << state;
            }
            let key = (daemon.number, lock);
            let before = self.record.borrow().holds.get(&key).copied();
            let held = self.world.as_machine(daemon.machine, || daemon.driver.hold(&name));
            let held = held.map(|(first, deadline)| {
                let since_boot =
                    deadline.since(leasehold::clock::Moment::from_boot(std::time::Duration::ZERO));
                (first, clocks.boot_reaches(since_boot.as_nanos() as Nanos))
            });
            let now = self.world.now();
            let passed = |held: &(u64, Nanos)| held.1 <= now;
            if before == held
                || before.zip(held).is_some_and(|(a, b)| a.0 == b.0 && passed(&a) && passed(&b))
            {
                continue;
            }
            let (number, mut record) = (daemon.number, self.record.borrow_mut());
            match held {
                Some((first, until)) => {
                    record.holds.insert(key, (first, until));
                    drop(record);
                    let last = first + 1023;
                    self.record(Event::Holds { daemon: number, lock, first, last, until });
                }
                None => {
                    record.holds.remove(&key);
                    drop(record);
                    self.record(Event::LetGo { daemon: number, lock });
                }
            }
        }
    }

    fn look_at_client(&self, machine: Machine) {
        let mut news = Vec::new();
        {
            let mut clients = self.clients.borrow_mut();
            let number = clients.iter().position(|process| process.machine == machine);
            let Some(number) = number else { return };
            let process = &mut clients[number];
            process.holds.retain(|hold| hold.guard.strong_count() > 0);
            let (clocks, now) = (self.world.clocks(machine), self.world.now());
            for hold in &mut process.holds {
                let Some(guard) = hold.guard.upgrade() else { continue };
                let seen = self.world.as_machine(machine, || guard.peek());
                let Some((deadline, valid)) = seen else { continue };
                // What it was told it has lost, it is not to believe in again.
                if hold.lost && !valid {
                    continue;
                }
                hold.lost = !valid;
                let zero = leasehold::clock::Moment::from_boot(std::time::Duration::ZERO);
                let shows = deadline.since(zero).as_nanos() as Nanos;
                let until = clocks.boot_reaches(shows);
                // What has passed has passed, whatever clock it is counted on; and true
                // time is known to the nanosecond only.
                if until.abs_diff(hold.until) > 1 && (until > now || hold.until > now) {
                    hold.until = until;
                    news.push(Event::Valid {
                        client: number as u32,
                        lock: hold.lock,
                        token: hold.token,
                        until,
                    });
                }
            }
        }
        for event in news {
            self.record(event);
        }
    }

    /// A client asks for a lock.
    pub fn acquire(&self, client: u32, lock: u32) {
        let place = self.clients.borrow()[client as usize].place;
        let daemon = self.places.borrow()[place].latest;
        let op = self.next_op();
        self.clients.borrow_mut()[client as usize].pending = Some(Pending { op, daemon, lock });
        self.record(Event::Acquire { op, client, daemon, lock });
    }

    /// What a client asks for is answered: its number.
    pub fn answered(&self, client: u32) -> u64 {
        let pending = self.clients.borrow_mut()[client as usize].pending.take();
        pending.map_or(u64::MAX, |pending| pending.op)
    }

    /// A client asks for something that it is told to wait for.
    pub fn queued(&self, client: u32) {
        let pending = self.clients.borrow()[client as usize].pending;
        if let Some(Pending { op, .. }) = pending {
            self.record(Event::Queued { op });
        }
    }

    /// A client has turned to another daemon: what it asked the one before for,
    /// it asks this one for.
    pub fn turned(&self, client: u32, daemon: u32) {
        let pending = self.clients.borrow()[client as usize].pending;
        if let Some(pending) = pending.filter(|pending| pending.daemon != daemon) {
            let why = "asked another daemon".to_owned();
            self.record(Event::Refused { op: pending.op, why, faulty: false });
            let (op, lock) = (self.next_op(), pending.lock);
            self.clients.borrow_mut()[client as usize].pending = Some(Pending { op, daemon, lock });
            self.record(Event::Acquire { op, client, daemon, lock });
        }
    }

    /// The guarded resource: says whether it takes what comes with this token.
    pub fn use_resource(&self, lock: u32, token: u64) -> bool {
        let mut record = self.record.borrow_mut();
        let highest = record.resource.entry(lock).or_default();
        *highest = (*highest).max(token);
        *highest == token
    }
}

impl Record {
    fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }
}

/// A number that tells events apart, with what matters of them.
fn event_number(event: &Event) -> u64 {
    match event {
        Event::Acquire { op, client, .. } => op << 8 | u64::from(*client) << 40,
        Event::Queued { op } => op << 8 | 1,
        Event::Granted { op, token } => op << 8 ^ token,
        Event::Refused { op, .. } => op << 8 | 3,
        Event::Valid { token, until, .. } | Event::Holds { first: token, until, .. } => {
            token ^ until
        }
        Event::Release { token, .. } | Event::Lost { token, .. } | Event::Used { token, .. } => {
            token << 3
        }
        Event::Leased { until, .. } => until << 1,
        Event::Stored { token, .. } => token << 2,
        _ => 5,
    }
}

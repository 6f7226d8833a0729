//! What there is in a simulated world, and what has happened in it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher as _},
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

/// How long a client may take to find a daemon that has begun.
const FOUND: Nanos = 10 * SECOND;

/// A place where a daemon runs; after a crash another does.
#[derive(Default)]
pub struct Place {
    /// The one that runs there, if one does.
    pub daemon: Option<Running>,
    /// The number of the one that runs there, or was the last to.
    pub latest: u32,
    /// Whether that one stops or has stopped, and grants nothing any more.
    pub stopping: bool,
    /// Since when the one that runs there does.
    pub since: Nanos,
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
    pub pending: Vec<Pending>,
    /// It has closed its session, and goes on under another number.
    pub closed: bool,
}

/// An acquire that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// What the client knows it by.
    pub ticket: u64,
    /// Its number in the history, and the daemon that it waits at; none while that
    /// one has stopped and no other was found.
    pub asked: Option<(u64, u32)>,
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
    pub until: Option<Nanos>,
    /// Whether it was seen not to be valid any more.
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
    /// By how many faults the ways between clients and places are cut: for
    /// requests, for answers.
    pub cut: RefCell<BTreeMap<(u32, usize), (u32, u32)>>,
    /// A crash that waits for its moment.
    pub trap: RefCell<Option<Trap>>,
    /// By which faults the storage's clock is ahead, and by how many seconds.
    pub ahead: RefCell<Vec<(usize, u64)>>,
    /// The machines whose clocks are worse than what is assumed.
    broken: RefCell<Vec<Machine>>,
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
            ahead: RefCell::default(),
            broken: RefCell::default(),
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
        self.mix(&self.dice.borrow_mut().bits());
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
        let kind = std::mem::discriminant(&call.act);
        self.mix(&(daemon, kind, &call.path, &call.if_match, &call.lease));
        self.mix(&(answer.status, answer.code, &answer.etag, answer.lease_state));
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
        let (Act::Acquire { id, .. } | Act::Renew { id }) = &call.act else { return };
        let until = {
            let storage = self.storage.borrow();
            let blob = storage.blob(&call.path).filter(|blob| blob.lease_id() == Some(id));
            blob.and_then(|blob| blob.leased_until(self.world.now()))
        };
        if let Some(until) = until.filter(|_| answer.status < 300) {
            let until = until + self.plan.habits.grace;
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
        for lock in 0..self.plan.locks {
            let name = lock_name(lock);
            if let Some((lease, grant, waited)) = daemon.driver.lock_state(&name) {
                let state = (lease * 3 + grant) * 2 + u8::from(waited);
                self.record.borrow_mut().states |= 1 << state;
            }
            let key = (daemon.number, lock);
            let before = self.record.borrow().holds.get(&key).copied();
            let held = self.world.as_machine(daemon.machine, || daemon.driver.hold(&name));
            let held =
                held.map(|(first, deadline)| (first, self.world.reaches(daemon.machine, deadline)));
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
            let now = self.world.now();
            let here = clients.iter_mut().enumerate();
            for (number, process) in here.filter(|(_, process)| process.machine == machine) {
                process.holds.retain(|hold| hold.guard.strong_count() > 0);
                for hold in &mut process.holds {
                    let Some(guard) = hold.guard.upgrade() else { continue };
                    let seen = self.world.as_machine(machine, || guard.peek());
                    let (client, lock, token) = (number as u32, hold.lock, hold.token);
                    let until = seen.map_or(now, |(until, _)| self.world.reaches(machine, until));
                    let valid = seen.is_some_and(|(_, valid)| valid);
                    // What was lost is not to be valid again. Until then its program may
                    // not have looked: that it was lost by its deadline, the program says.
                    if valid && hold.lost {
                        news.push(Event::Lost { client, lock, token });
                    }
                    // True time is known to the nanosecond only.
                    let moved = hold.until.is_none_or(|before| until.abs_diff(before) > 1);
                    if hold.until.is_none() || (valid && (moved || hold.lost)) {
                        hold.until = Some(until);
                        news.push(Event::Valid { client, lock, token, until });
                    }
                    hold.lost = !valid;
                }
            }
        }
        for event in news {
            self.record(event);
        }
    }

    /// The clock of this machine is worse than what is assumed from here on: that
    /// of a client, or that of the daemon of some.
    pub fn clock_breaks(&self, machine: Machine) {
        self.broken.borrow_mut().push(machine);
        let clients = self.clients.borrow().len() as u32;
        (0..clients).for_each(|client| self.note_clock(client));
    }

    /// Notes that a client has to do with a clock that is worse than what is assumed,
    /// if it has.
    pub fn note_clock(&self, client: u32) {
        let (machine, daemon) = {
            let client = &self.clients.borrow()[client as usize];
            let daemon = self.places.borrow()[client.place].daemon.as_ref().map(|d| d.machine);
            (client.machine, daemon)
        };
        let broken = self.broken.borrow();
        if self.world.is_alive(machine)
            && (broken.contains(&machine) || daemon.is_some_and(|daemon| broken.contains(&daemon)))
        {
            self.record(Event::ClockBroken { client });
        }
    }

    /// A client asks for a lock: what it is to know that by.
    pub fn acquire(&self, client: u32, lock: u32) -> u64 {
        let ticket = self.next_op();
        let place = self.clients.borrow()[client as usize].place;
        let daemon = self.places.borrow()[place].latest;
        let asked = self.ask(client, lock, daemon, place);
        let pending = Pending { ticket, asked, lock };
        self.clients.borrow_mut()[client as usize].pending.push(pending);
        ticket
    }

    /// Whoever asks a daemon that is stopping is refused at once, and finds another.
    fn ask(&self, client: u32, lock: u32, daemon: u32, place: usize) -> Option<(u64, u32)> {
        if self.places.borrow()[place].stopping {
            return None;
        }
        let op = self.next_op();
        self.record(Event::Acquire { op, client, daemon, lock });
        Some((op, daemon))
    }

    /// What was refused because a daemon stops was granted all the same: its number
    /// in the history.
    pub fn ask_late(&self, client: u32, lock: u32) -> u64 {
        let place = self.clients.borrow()[client as usize].place;
        let (op, daemon) = (self.next_op(), self.places.borrow()[place].latest);
        self.record(Event::Acquire { op, client, daemon, lock });
        op
    }

    /// What a client asks for is answered: its number in the history, if it is
    /// there.
    pub fn answered(&self, client: u32, ticket: u64) -> Option<u64> {
        let pending = {
            let pending = &mut self.clients.borrow_mut()[client as usize].pending;
            let nth = pending.iter().position(|pending| pending.ticket == ticket);
            nth.map(|nth| pending.swap_remove(nth))
        };
        pending?.asked.map(|(op, _)| op)
    }

    /// A client asks for something that it is told to wait for.
    pub fn queued(&self, client: u32, ticket: u64) {
        let asked = {
            let clients = self.clients.borrow();
            let mut pending = clients[client as usize].pending.iter();
            pending.find(|pending| pending.ticket == ticket).and_then(|pending| pending.asked)
        };
        if let Some((op, _)) = asked {
            self.record(Event::Queued { op });
        }
    }

    /// A client has turned to another daemon: what it asked the one before for,
    /// it asks this one for.
    pub fn turned(&self, client: u32, daemon: u32) {
        let place = self.clients.borrow()[client as usize].place;
        self.each_pending(client, |scene, pending| match pending.asked {
            Some((_, before)) if before == daemon => {}
            _ => {
                scene.give_up(pending, "asked another daemon");
                pending.asked = scene.ask(client, pending.lock, daemon, place);
            }
        });
        self.note_clock(client);
    }

    /// The daemon of a place refuses all who wait there, because it stops. Says
    /// whether some may have been granted something that they have not heard of.
    pub fn stops(&self, place: usize) -> bool {
        self.places.borrow_mut()[place].stopping = true;
        let clients = self.clients.borrow().len() as u32;
        let mut unclear = false;
        for client in 0..clients {
            if self.clients.borrow()[client as usize].place != place {
                continue;
            }
            let connections = self.connections.borrow();
            if connections.iter().any(|known| known.client == client && known.brings_grant()) {
                unclear = true;
            } else {
                self.each_pending(client, |scene, pending| {
                    scene.give_up(pending, "its daemon stops");
                });
            }
        }
        unclear
    }

    /// A client closes its session, and goes on under another number.
    pub fn closes(&self, client: u32) -> u32 {
        let (machine, place) = {
            let process = &mut self.clients.borrow_mut()[client as usize];
            process.closed = true;
            // With it goes all that was granted in it, whichever hand has it.
            for Hold { lock, token, lost, .. } in &mut process.holds {
                *lost = true;
                self.record(Event::Lost { client, lock: *lock, token: *token });
            }
            (process.machine, process.place)
        };
        self.each_pending(client, |scene, pending| scene.give_up(pending, "closed its session"));
        self.enrol(machine, place)
    }

    /// The number of a new session.
    pub fn enrol(&self, machine: Machine, place: usize) -> u32 {
        let number = {
            let mut clients = self.clients.borrow_mut();
            let (holds, pending) = (Vec::new(), Vec::new());
            clients.push(Process { machine, place, holds, pending, closed: false });
            clients.len() as u32 - 1
        };
        self.note_clock(number);
        number
    }

    /// Whether a client's daemon, or the client itself, is the reason why an acquire
    /// comes to nothing: there is none, or it was told to stop, or it is so new that
    /// the client has yet to find it; or the client has closed its session.
    #[must_use]
    pub fn is_given_up(&self, client: u32) -> bool {
        let clients = self.clients.borrow();
        let client = &clients[client as usize];
        let place = &self.places.borrow()[client.place];
        let found = place.daemon.is_some() && place.since + FOUND <= self.world.now();
        client.closed || place.stopping || !found
    }

    fn each_pending(&self, client: u32, act: impl Fn(&Self, &mut Pending)) {
        let mut pending = std::mem::take(&mut self.clients.borrow_mut()[client as usize].pending);
        pending.iter_mut().for_each(|pending| act(self, pending));
        self.clients.borrow_mut()[client as usize].pending = pending;
    }

    fn give_up(&self, pending: &mut Pending, why: &str) {
        if let Some((op, _)) = pending.asked.take() {
            self.record(Event::Refused { op, why: why.to_owned(), faulty: false });
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

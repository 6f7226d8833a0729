//! World in virtual time: machines with their own clocks, and the tasks that
//! run on them, one at a time, in an order determined by the seed.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leasehold_time::{
    Moment,
    simulation::{self, Task},
};
use slab::Slab;

use crate::{
    broken::{self, Wrapped},
    clock::{Clocks, Stop},
    rng::Rng,
};

/// True time, in nanoseconds since the start.
pub use leasehold_simulated_storage::{Nanos, SECOND};

/// One millisecond of simulated time.
pub const MILLISECOND: Nanos = SECOND / 1_000;

/// Start date of the storage service, in seconds since 1970.
pub const BEGINNING: u64 = 1_900_000_000;

/// Maximum number of task polls at one instant. More indicate a busy loop.
const MAX_POLLS: u32 = 100_000;

/// Machine. A restart after a crash is a new machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine(pub usize);

struct State {
    clocks: Clocks,
    alive: bool,
    /// Number of active pauses.
    pauses: u32,
    /// Tasks that are ready, but paused.
    parked: Vec<TaskId>,
    /// Time of the last pause, resume or clock change.
    changed_at: Nanos,
    /// Time at which its wall clock was last set.
    set: Option<Nanos>,
    rng: Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskId {
    slot: usize,
    generation: u64,
}

struct Slot {
    generation: u64,
    machine: Machine,
    /// None while it is being polled.
    task: Option<Task>,
    waker: Arc<TaskWaker>,
}

type Ready = Arc<Mutex<VecDeque<TaskId>>>;

struct TaskWaker {
    id: TaskId,
    queued: AtomicBool,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.id);
        }
    }
}

enum Due {
    Wake(Waker),
    Run(Box<dyn FnOnce()>),
}

/// World of machines and tasks.
pub struct World {
    now: Cell<Nanos>,
    current: Cell<Option<Machine>>,
    machines: RefCell<Vec<State>>,
    tasks: RefCell<Slab<Slot>>,
    generations: Cell<u64>,
    ready: Ready,
    /// Ordered by time, then by creation.
    timers: RefCell<BinaryHeap<Reverse<(Nanos, u64, usize)>>>,
    dues: RefCell<Slab<Due>>,
    timers_made: Cell<u64>,
    polls: Cell<u64>,
    /// Number of task polls at the current instant.
    polls_at: Cell<(Nanos, u32)>,
    rng: RefCell<Rng>,
}

thread_local! {
    static HERE: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Returns the world of this thread.
///
/// # Panics
/// Outside of a simulation.
#[must_use]
#[allow(clippy::expect_used, reason = "a bug in the simulation")]
pub fn here() -> Rc<World> {
    HERE.with_borrow(|here| here.clone()).expect("inside of a simulation")
}

/// View of the current machine that the product uses.
struct MachineView;

impl simulation::World for MachineView {
    fn now(&self) -> Moment {
        let world = here();
        let now = world.on_clocks(|clocks, now| {
            // Safety rule 5.
            if broken::is(Wrapped::ClockStopsInSuspend) {
                clocks.timers(now)
            } else {
                clocks.boot(now)
            }
        });
        Moment::from_boot(Duration::from_nanos(now))
    }

    fn wall(&self) -> SystemTime {
        let wall = here().on_clocks(|clocks, now| clocks.wall(now));
        UNIX_EPOCH + Duration::from_nanos(wall)
    }

    fn seed(&self) -> u64 {
        let world = here();
        let machine = world.current.get();
        machine.map_or(0, |machine| world.machines.borrow_mut()[machine.0].rng.bits())
    }

    fn sleep(&self, length: Duration) -> Option<Task> {
        let world = here();
        let machine = world.current.get()?;
        let until = world.on_clocks(|clocks, now| clocks.timers(now))
            + u64::try_from(length.as_nanos()).unwrap_or(Nanos::MAX / 4).min(Nanos::MAX / 4);
        Some(Box::pin(Sleep { machine, until, armed: None }))
    }

    fn spawn(&self, task: Task) -> Option<Task> {
        let world = here();
        if let Some(machine) = world.current.get() {
            world.spawn(machine, task);
        }
        None
    }
}

/// Waits until a machine's timer clock reaches `until`.
struct Sleep {
    machine: Machine,
    until: Nanos,
    armed: Option<Nanos>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let world = here();
        let (reading, when) = {
            let machines = world.machines.borrow();
            let clocks = &machines[self.machine.0].clocks;
            (clocks.timers(world.now.get()), clocks.timers_reach(self.until))
        };
        if reading >= self.until {
            return Poll::Ready(());
        }
        if self.armed != Some(when) && when != Nanos::MAX {
            self.armed = Some(when);
            world.wake_at(when, cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Guard of a thread that has entered a world; leaves it when dropped.
pub struct Inside {
    _window: simulation::Inside,
}

impl Drop for Inside {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

impl World {
    /// Creates an empty world and enters it on this thread.
    #[must_use]
    pub fn enter(rng: Rng) -> (Rc<Self>, Inside) {
        let world = Rc::new(Self {
            now: Cell::new(0),
            current: Cell::new(None),
            machines: RefCell::default(),
            tasks: RefCell::default(),
            generations: Cell::new(0),
            ready: Ready::default(),
            timers: RefCell::default(),
            dues: RefCell::default(),
            timers_made: Cell::new(0),
            polls: Cell::new(0),
            polls_at: Cell::new((0, 0)),
            rng: RefCell::new(rng),
        });
        HERE.set(Some(Rc::clone(&world)));
        (world, Inside { _window: simulation::enter(Rc::new(MachineView)) })
    }

    /// Returns the true time.
    pub fn now(&self) -> Nanos {
        self.now.get()
    }

    /// Returns a number that differs if any decision differed.
    pub fn rng(&self) -> u64 {
        self.rng.borrow_mut().bits()
    }

    /// Returns the number of task polls.
    pub fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Adds a machine.
    pub fn add_machine(&self, clocks: Clocks, rng: Rng) -> Machine {
        let mut machines = self.machines.borrow_mut();
        let (parked, changed_at) = (Vec::new(), self.now());
        machines.push(State { clocks, alive: true, pauses: 0, parked, changed_at, set: None, rng });
        Machine(machines.len() - 1)
    }

    /// Returns whether the machine has not crashed.
    pub fn is_alive(&self, machine: Machine) -> bool {
        self.machines.borrow()[machine.0].alive
    }

    /// Returns whether the machine is paused.
    pub fn is_paused(&self, machine: Machine) -> bool {
        self.machines.borrow()[machine.0].pauses > 0
    }

    /// Returns whether the machine was neither paused nor had its clocks
    /// changed for this long.
    pub fn ran_evenly(&self, machine: Machine, length: Nanos) -> bool {
        let state = &self.machines.borrow()[machine.0];
        state.pauses == 0 && state.changed_at + length <= self.now()
    }

    /// Steps the machine's wall clock.
    pub fn set_wall(&self, machine: Machine, by: i64) {
        self.machines.borrow_mut()[machine.0].set = Some(self.now());
        self.change_clocks(machine, |clocks, now| clocks.set_wall(by, now));
    }

    /// Returns whether its wall clock was set within the last `length`.
    pub fn was_set(&self, machine: Machine, length: Nanos) -> bool {
        let set = self.machines.borrow()[machine.0].set;
        set.is_some_and(|set| set + length > self.now())
    }

    /// Returns when the clock that the product reads on a machine reaches this
    /// moment; `Nanos::MAX` if it is stopped.
    #[must_use]
    pub fn reaches(&self, machine: Machine, moment: Moment) -> Nanos {
        let reading = moment.since(Moment::from_boot(Duration::ZERO)).as_nanos() as Nanos;
        let machines = self.machines.borrow();
        let clocks = &machines[machine.0].clocks;
        // Safety rule 5.
        if broken::is(Wrapped::ClockStopsInSuspend) {
            clocks.timers_reach(reading)
        } else {
            clocks.boot_reaches(reading)
        }
    }

    /// Changes the clocks of a machine and wakes its tasks.
    pub fn change_clocks(&self, machine: Machine, change: impl FnOnce(&mut Clocks, Nanos)) {
        {
            let state = &mut self.machines.borrow_mut()[machine.0];
            state.changed_at = self.now();
            change(&mut state.clocks, self.now());
        }
        self.wake_all(machine);
    }

    fn wake_all(&self, machine: Machine) {
        for (_, slot) in self.tasks.borrow().iter().filter(|(_, slot)| slot.machine == machine) {
            slot.waker.wake_by_ref();
        }
    }

    fn on_clocks<T>(&self, observe: impl FnOnce(&Clocks, Nanos) -> T) -> T {
        let machines = self.machines.borrow();
        match self.current.get() {
            Some(machine) => observe(&machines[machine.0].clocks, self.now()),
            None => observe(&Clocks::new(0, BEGINNING * SECOND, 0), self.now()),
        }
    }

    /// Runs `act` as this machine, as if in one of its tasks.
    pub fn as_machine<T>(&self, machine: Machine, act: impl FnOnce() -> T) -> T {
        let before = self.current.replace(Some(machine));
        let result = act();
        self.current.set(before);
        result
    }

    /// Starts a task on a machine, unless that has crashed.
    pub fn spawn(&self, machine: Machine, task: Task) {
        if !self.is_alive(machine) {
            return;
        }
        let generation = self.generations.get() + 1;
        self.generations.set(generation);
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.vacant_key();
        let id = TaskId { slot, generation };
        let ready = Arc::clone(&self.ready);
        let waker = Arc::new(TaskWaker { id, queued: AtomicBool::new(false), ready });
        waker.wake_by_ref();
        tasks.insert(Slot { generation, machine, task: Some(task), waker });
    }

    /// Schedules `act` at this time.
    pub fn at(&self, when: Nanos, act: impl FnOnce() + 'static) {
        self.arm(when, Due::Run(Box::new(act)));
    }

    /// Schedules `act` after this time.
    pub fn after(&self, length: Nanos, act: impl FnOnce() + 'static) {
        self.at(self.now().saturating_add(length), act);
    }

    /// Schedules a wakeup at this time.
    pub fn wake_at(&self, when: Nanos, waker: Waker) {
        self.arm(when, Due::Wake(waker));
    }

    fn arm(&self, when: Nanos, due: Due) {
        let made = self.timers_made.get() + 1;
        self.timers_made.set(made);
        let key = self.dues.borrow_mut().insert(due);
        self.timers.borrow_mut().push(Reverse((when.max(self.now()), made, key)));
    }

    /// Pauses a machine; `how` selects the effect on its clocks.
    pub fn pause(&self, machine: Machine, how: Option<Stop>) {
        let now = self.now();
        let mut machines = self.machines.borrow_mut();
        let state = &mut machines[machine.0];
        state.pauses += 1;
        state.changed_at = now;
        if let Some(how) = how {
            state.clocks.stop(how, now);
        }
    }

    /// Ends a pause of a machine.
    pub fn resume(&self, machine: Machine, how: Option<Stop>) {
        let now = self.now();
        let mut parked = {
            let mut machines = self.machines.borrow_mut();
            let state = &mut machines[machine.0];
            state.pauses = state.pauses.saturating_sub(1);
            state.changed_at = now;
            if let Some(how) = how {
                state.clocks.resume(how, now);
            }
            if state.pauses == 0 { std::mem::take(&mut state.parked) } else { Vec::new() }
        };
        // Parked tasks run in random order.
        let mut rng = self.rng.borrow_mut();
        for last in (1..parked.len()).rev() {
            parked.swap(last, rng.index(last + 1));
        }
        drop(rng);
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).extend(parked);
        if how.is_some() {
            self.wake_all(machine);
        }
    }

    /// Crashes a machine: its tasks are dropped.
    pub fn crash(&self, machine: Machine) {
        self.machines.borrow_mut()[machine.0].alive = false;
        self.drop_tasks(|slot| slot.machine == machine);
    }

    fn drop_tasks(&self, which: impl Fn(&Slot) -> bool) {
        let mut gone = Vec::new();
        {
            let mut tasks = self.tasks.borrow_mut();
            let keys: Vec<_> =
                tasks.iter().filter(|(_, slot)| which(slot)).map(|(key, _)| key).collect();
            for key in keys {
                let slot = tasks.remove(key);
                gone.push((slot.machine, slot.task));
            }
        }
        // Destructors run on the task's machine.
        for (machine, task) in gone {
            self.as_machine(machine, || drop(task));
        }
    }

    /// Runs until this time. Calls `observe` after each task poll.
    pub fn run_until(&self, end: Nanos, mut observe: impl FnMut(Machine)) {
        loop {
            while let Some(id) = self.next_ready() {
                if let Some(machine) = self.poll(id) {
                    observe(machine);
                }
            }
            let next = self.timers.borrow().peek().map(|Reverse((when, ..))| *when);
            let Some(when) = next.filter(|when| *when <= end) else { break };
            self.now.set(when);
            let due = self.timers.borrow_mut().pop();
            if let Some(Reverse((_, _, key))) = due {
                let due = self.dues.borrow_mut().remove(key);
                match due {
                    Due::Wake(waker) => waker.wake(),
                    Due::Run(act) => act(),
                }
            }
        }
        self.now.set(end.max(self.now()));
    }

    /// Returns a ready task: usually the first, sometimes a random one, because
    /// no order is guaranteed.
    fn next_ready(&self) -> Option<TaskId> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.len() > 1 {
            let mut rng = self.rng.borrow_mut();
            if rng.permille(250) {
                let other = rng.index(ready.len());
                ready.swap(0, other);
            }
        }
        ready.pop_front()
    }

    /// # Panics
    /// If tasks are polled without time advancing: a busy loop.
    fn count_poll(&self) {
        self.polls.set(self.polls.get() + 1);
        let (at, polls) = self.polls_at.get();
        let polls = if at == self.now() { polls + 1 } else { 0 };
        assert!(polls < MAX_POLLS, "{polls} polls at {} ns: a busy loop", self.now());
        self.polls_at.set((self.now(), polls));
    }

    fn poll(&self, id: TaskId) -> Option<Machine> {
        let (machine, mut task, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            let slot = tasks.get_mut(id.slot).filter(|slot| slot.generation == id.generation)?;
            let machine = slot.machine;
            let mut machines = self.machines.borrow_mut();
            if machines[machine.0].pauses > 0 {
                machines[machine.0].parked.push(id);
                return None;
            }
            slot.waker.queued.store(false, Ordering::Relaxed);
            (machine, slot.task.take()?, Arc::clone(&slot.waker))
        };
        self.count_poll();
        let waker = Waker::from(waker);
        let done = self.as_machine(machine, || {
            task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        });
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.get_mut(id.slot).filter(|slot| slot.generation == id.generation);
        match slot {
            Some(slot) if !done => slot.task = Some(task),
            Some(_) => {
                tasks.remove(id.slot);
                drop(tasks);
                self.as_machine(machine, || drop(task));
            }
            // The machine has crashed during the poll.
            None => {
                drop(tasks);
                self.as_machine(machine, || drop(task));
            }
        }
        Some(machine)
    }

    /// Ends the world: all machines stop.
    pub fn end(&self) {
        for machine in self.machines.borrow_mut().iter_mut() {
            machine.alive = false;
        }
        self.drop_tasks(|_| true);
        let dues = std::mem::take(&mut *self.dues.borrow_mut());
        drop(dues);
    }
}

//! The product's clocks, on turmoil's time.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leasehold_checker::Nanos;
use leasehold_simulator::{rng::Rng, world::BEGINNING};
use leasehold_time::{
    Moment,
    simulation::{self, Inside, Task, World},
};

/// How much time passes in a step: each host runs this long before the next
/// does, and nothing that one sends reaches another in the same step.
pub const TICK: Duration = Duration::from_millis(10);

thread_local! {
    /// When the present step began, and when it ends.
    static STEP: Cell<(Duration, Duration)> = const { Cell::new((Duration::ZERO, Duration::ZERO)) };
    static RNG: RefCell<Rng> = const { RefCell::new(Rng::new(0)) };
}

/// True time since the beginning.
///
/// A host whose software is being dropped has no clock of its own any more;
/// what turmoil says then is kept within the step.
#[must_use]
pub fn now() -> Duration {
    let (begin, end) = STEP.get();
    turmoil::sim_elapsed().unwrap_or(begin).clamp(begin, end)
}

/// The same, for histories.
#[must_use]
pub fn nanos() -> Nanos {
    now().as_nanos() as Nanos
}

/// What the storage service's clock shows: seconds since 1970.
#[must_use]
pub fn date() -> u64 {
    BEGINNING + now().as_secs()
}

/// A moment of the product as true time.
#[must_use]
pub fn true_time(moment: Moment) -> Nanos {
    moment.since(Moment::from_boot(Duration::ZERO)).as_nanos() as Nanos
}

/// A number for a process to start its own randomness from.
#[must_use]
pub fn seed() -> u64 {
    RNG.with_borrow_mut(Rng::bits)
}

/// What the step that is to come covers.
pub(crate) fn set_step(begin: Duration, end: Duration) {
    STEP.set((begin, end));
}

struct Window;

impl World for Window {
    fn now(&self) -> Moment {
        Moment::from_boot(now())
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(BEGINNING) + now()
    }

    fn seed(&self) -> u64 {
        seed()
    }

    fn sleep(&self, _: Duration) -> Option<Task> {
        None
    }

    fn spawn(&self, task: Task) -> Option<Task> {
        Some(task)
    }
}

/// The product's clocks on this thread are the simulation's from here on.
pub(crate) fn enter(rng: Rng) -> Inside {
    RNG.set(rng);
    set_step(Duration::ZERO, Duration::ZERO);
    simulation::enter(Rc::new(Window))
}

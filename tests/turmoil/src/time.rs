//! Clocks of the product, on turmoil's time.

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

/// Length of a step: each host runs this long before the next one does. Data
/// from one host reaches another in a later step only.
pub const TICK: Duration = Duration::from_millis(10);

thread_local! {
    /// Start and end of the current step.
    static STEP: Cell<(Duration, Duration)> = const { Cell::new((Duration::ZERO, Duration::ZERO)) };
    static RNG: RefCell<Rng> = const { RefCell::new(Rng::new(0)) };
}

/// Returns the true time since the start.
///
/// A host whose software is being dropped has no clock; the time that turmoil
/// reports then is clamped to the step.
#[must_use]
pub fn now() -> Duration {
    let (begin, end) = STEP.get();
    turmoil::sim_elapsed().unwrap_or(begin).clamp(begin, end)
}

/// Same as [`now`], for histories.
#[must_use]
pub fn nanos() -> Nanos {
    now().as_nanos() as Nanos
}

/// Returns the date of the storage service, in seconds since 1970.
#[must_use]
pub fn date() -> u64 {
    BEGINNING + now().as_secs()
}

/// Converts a moment of the product to true time.
#[must_use]
pub fn true_time(moment: Moment) -> Nanos {
    moment.since(Moment::from_boot(Duration::ZERO)).as_nanos() as Nanos
}

/// Returns a seed for the random numbers of a process.
#[must_use]
pub fn seed() -> u64 {
    RNG.with_borrow_mut(Rng::bits)
}

/// Sets the start and end of the next step.
pub(crate) fn set_step(begin: Duration, end: Duration) {
    STEP.set((begin, end));
}

struct ProductView;

impl World for ProductView {
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

/// Makes the product use the simulation's clocks on this thread.
pub(crate) fn enter(rng: Rng) -> Inside {
    RNG.set(rng);
    set_step(Duration::ZERO, Duration::ZERO);
    simulation::enter(Rc::new(ProductView))
}

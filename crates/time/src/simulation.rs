//! For simulations: clocks, timers and tasks of a simulated world. Each thread is
//! in one simulated world at most.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    time::{Duration, SystemTime},
};

use crate::clock::Moment;

/// Something that runs by itself.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A simulated world, as seen by the process that is running in it at present.
pub trait World {
    /// The clock that counts through suspend.
    fn now(&self) -> Moment;
    /// The wall clock.
    fn wall(&self) -> SystemTime;
    /// A number that differs from process to process.
    fn seed(&self) -> u64;
    /// Waits; none if the runtime's own timers will do.
    fn sleep(&self, length: Duration) -> Option<Task>;
    /// Starts a task; gives it back if the runtime is to do that.
    fn spawn(&self, task: Task) -> Option<Task>;
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// This thread is in a world until this is dropped.
#[must_use]
pub struct Inside(());

/// Enters a world.
pub fn enter(world: Rc<dyn World>) -> Inside {
    WORLD.set(Some(world));
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

/// Asks the world, if there is one.
pub fn ask<T>(question: impl FnOnce(&dyn World) -> T) -> Option<T> {
    WORLD.with_borrow(|world| world.as_deref().map(question))
}

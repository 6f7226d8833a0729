//! Interface to a simulated world: its clocks, timers and tasks. A thread is in
//! at most one simulated world.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    time::{Duration, SystemTime},
};

use crate::clock::Moment;

/// Task of a simulated world.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Simulated world, from the view of the process that currently runs in it.
pub trait World {
    /// Reads the boot-time clock.
    fn now(&self) -> Moment;
    /// Reads the wall clock.
    fn wall(&self) -> SystemTime;
    /// Returns a seed that differs between processes.
    fn seed(&self) -> u64;
    /// Returns a future that waits for `duration`; `None` to use the runtime's
    /// timers.
    fn sleep(&self, duration: Duration) -> Option<Task>;
    /// Starts a task. Returns the task if the runtime should run it.
    fn spawn(&self, task: Task) -> Option<Task>;
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Guard that keeps the thread in a world until it is dropped.
#[must_use]
pub struct Inside(());

/// Makes the thread enter a world.
pub fn enter(world: Rc<dyn World>) -> Inside {
    WORLD.set(Some(world));
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

/// Calls `read` with the world of this thread; `None` if there is none.
pub fn ask<T>(read: impl FnOnce(&dyn World) -> T) -> Option<T> {
    WORLD.with_borrow(|world| world.as_deref().map(read))
}

//! Virtual time that advances only while all tasks wait.

use std::{
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leasehold_runtime::sleep;
use leasehold_time::{
    Moment,
    simulation::{self, Task, World},
};
use tokio::{runtime::Builder, time::Instant};

/// Start of the wall clock: March 2030.
const BEGINNING: Duration = Duration::from_secs(1_900_000_000);

struct Paused(Instant);

impl World for Paused {
    fn now(&self) -> Moment {
        Moment::from_boot(self.0.elapsed())
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + BEGINNING + self.0.elapsed()
    }

    fn seed(&self) -> u64 {
        7
    }

    fn sleep(&self, _: Duration) -> Option<Task> {
        None
    }

    fn spawn(&self, task: Task) -> Option<Task> {
        Some(task)
    }
}

#[allow(clippy::disallowed_methods, reason = "the clock of the world is made from it")]
fn beginning() -> Instant {
    Instant::now()
}

/// Runs a future in its own world. The tasks that it starts end with it.
pub(crate) fn run<T>(program: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let _inside = simulation::enter(Rc::new(Paused(beginning())));
        program.await
    })
}

/// Returns the outcome of a call.
///
/// # Panics
/// If the call does not end by its deadline.
pub(crate) async fn by<T>(deadline: Duration, call: impl IntoFuture<Output = T>) -> T {
    tokio::select! {
        biased;
        done = call.into_future() => done,
        () = sleep(deadline) => panic!("a call has not ended within {deadline:?}"),
    }
}

//! Task spawning.

use tokio::runtime::Handle;

/// Starts a task in the current runtime, or in the simulated world.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    spawn_on(&Handle::current(), task);
}

/// Starts a task on a runtime.
#[cfg(not(feature = "simulation"))]
pub fn spawn_on(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(task);
}

/// Starts a task in the simulated world, or on `runtime` if there is none.
#[cfg(feature = "simulation")]
pub fn spawn_on(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    let mut task = Some(Box::pin(task) as leasehold_time::simulation::Task);
    leasehold_time::simulation::ask(|world| task = task.take().and_then(|task| world.spawn(task)));
    if let Some(task) = task {
        runtime.spawn(task);
    }
}

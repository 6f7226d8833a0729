//! Where tasks are started.

use tokio::runtime::Handle;

/// Starts a task in the runtime.
#[cfg(not(feature = "simulation"))]
pub fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(task);
}

/// Starts a task in the simulated world, or in the runtime if there is none.
#[cfg(feature = "simulation")]
pub fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    let mut task = Some(Box::pin(task) as crate::simulation::Task);
    crate::simulation::ask(|world| task = task.take().and_then(|task| world.spawn(task)));
    if let Some(task) = task {
        runtime.spawn(task);
    }
}

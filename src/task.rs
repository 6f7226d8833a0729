//! Where tasks are started: in the runtime, or in a simulated world.

use tokio::runtime::Handle;

/// Starts a task.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    leasehold_time::task::spawn(&Handle::current(), task);
}

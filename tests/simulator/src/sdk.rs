//! The storage SDK's own tasks and waits, in the simulated world.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use azure_core::{
    async_runtime::{AbortableTask, AsyncRuntime, SpawnedTask, TaskFuture, set_async_runtime},
    time::Duration,
};
use leasehold_runtime as task;
use tokio::sync::oneshot;

/// Sees to it that the SDK runs nothing outside of the world.
pub fn capture() {
    // Another thread may have done it already.
    _ = set_async_runtime(Arc::new(InWorld));
}

struct InWorld;

impl AsyncRuntime for InWorld {
    fn spawn(&self, work: TaskFuture) -> SpawnedTask {
        let (done, ended) = oneshot::channel();
        task::spawn(async move {
            work.await;
            // Nobody may be waiting for it.
            _ = done.send(());
        });
        Box::pin(Spawned(ended))
    }

    fn sleep(&self, duration: Duration) -> TaskFuture {
        Box::pin(leasehold_runtime::sleep(duration.unsigned_abs()))
    }

    fn yield_now(&self) -> TaskFuture {
        Box::pin(std::future::ready(()))
    }
}

/// A task of the SDK. It can't be ended from outside: none of those that are
/// used here takes long.
struct Spawned(oneshot::Receiver<()>);

impl Future for Spawned {
    type Output = Result<(), Box<dyn Error + Send>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|ended| ended.map_err(|gone| Box::new(gone) as Box<dyn Error + Send>))
    }
}

impl AbortableTask for Spawned {
    fn abort(&self) {}
}

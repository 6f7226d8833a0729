//! Tasks and timers of the storage SDK, in the simulation.

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

/// Makes the SDK run all its tasks and timers in the simulation.
pub fn install() {
    // Another thread may have set it already.
    _ = set_async_runtime(Arc::new(SimRuntime));
}

struct SimRuntime;

impl AsyncRuntime for SimRuntime {
    fn spawn(&self, work: TaskFuture) -> SpawnedTask {
        let (done, ended) = oneshot::channel();
        task::spawn(async move {
            work.await;
            // The receiver may have been dropped.
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

/// Task of the SDK. It can't be aborted; the tasks used here are short.
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

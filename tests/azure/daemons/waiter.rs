//! An acquire that waits.

use leasehold_client::{Client, Guard};
use leasehold_time::Moment;
use tokio::{sync::mpsc, task::JoinHandle};

/// An acquire that waits, in a task of its own.
pub(crate) struct Waiter(JoinHandle<(Guard, Moment)>);

impl Waiter {
    /// Begins to wait; returns when it is in the daemon's queue.
    pub(crate) async fn begin(client: &Client, lock: &str) -> Self {
        let (tell, mut positions) = mpsc::unbounded_channel();
        let request = client.lock(lock).on_progress(move |progress| {
            _ = tell.send(progress.position);
        });
        let task = tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            (guard, Moment::now())
        });
        while positions.recv().await.expect("it waits") == 0 {}
        Self(task)
    }

    /// The grant, and when its client had it.
    pub(crate) async fn granted(self) -> (Guard, Moment) {
        self.0.await.unwrap()
    }
}

//! Waiting acquires.

use leasehold_client::{Client, Guard};
use leasehold_time::Moment;
use tokio::{sync::mpsc, task::JoinHandle};

/// A waiting acquire in a task.
pub(crate) struct Waiter(JoinHandle<(Guard, Moment)>);

impl Waiter {
    /// Starts the acquire and returns when it is in the daemon's queue.
    pub(crate) async fn start(client: &Client, lock: &str) -> Self {
        let (sender, mut positions) = mpsc::unbounded_channel();
        let request = client.lock(lock).on_progress(move |progress| {
            _ = sender.send(progress.position);
        });
        let task = tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            (guard, Moment::now())
        });
        while positions.recv().await.expect("a queue position") == 0 {}
        Self(task)
    }

    /// Waits for the grant. Returns it with the time of its receipt.
    pub(crate) async fn granted(self) -> (Guard, Moment) {
        self.0.await.unwrap()
    }
}

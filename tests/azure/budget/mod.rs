//! Number of storage calls per operation, as recorded by the proxy.

mod counters;
mod duration;
mod grant;
mod keep;
mod wait;

use std::time::Duration;

use leasehold_client::{Client, Error, Guard};
use leasehold_test_support::{
    Daemon,
    proxy::{Kind, RecordedCall},
};

use crate::fixture::{Fixture, Scenarios, wait_for};
use tokio::{sync::mpsc, task::JoinHandle};

/// Runs scenarios that take longer than a lease, concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_scenarios() {
    Scenarios::default()
        .start(keep::held_lock_is_renewed_once_per_third_of_duration)
        .start(keep::lingering_lease_is_reused_without_storage_call)
        .start(keep::lease_without_grant_does_not_linger)
        .start(wait::waiters_share_one_poll_per_second)
        .start(wait::no_wait_acquire_makes_one_attempt)
        .start(counters::counters_match_proxy_record)
        .join()
        .await;
}

/// Opens a session with a TTL longer than the test.
async fn connect(daemon: &Daemon) -> Client {
    let ttl = Duration::from_secs(60);
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(ttl).connect().await.unwrap()
}

/// Waits for a held lock in a task. The waiter is in the queue when this
/// returns.
async fn queue(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let (sender, mut positions) = mpsc::unbounded_channel();
    let request = client.lock(name).on_progress(move |progress| {
        _ = sender.send(progress.position);
    });
    let waiter = tokio::spawn(request.acquire());
    wait_for("the queue position", async { while positions.recv().await.unwrap() == 0 {} }).await;
    waiter
}

/// Releases a lock and waits for the release of its lease.
async fn release(fixture: &Fixture, guard: Guard) {
    let name = guard.name().to_owned();
    let before = fixture.proxy.count(Kind::Release.of(&name));
    guard.release().await.unwrap();
    let released = |call: &RecordedCall| {
        call.kind == Kind::Release && call.blob.ends_with(&name) && call.is_done()
    };
    wait_for("the release", fixture.proxy.wait_for_many(before + 1, released)).await;
}

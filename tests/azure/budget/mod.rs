//! How many calls to the storage each thing costs, counted by the proxy that
//! they pass.

mod counters;
mod duration;
mod grant;
mod keep;
mod wait;

use std::time::Duration;

use leasehold_client::{Client, Error, Guard};
use leasehold_test_support::{
    Daemon,
    proxy::{Kind, Seen},
};

use crate::scene::{Scene, Together, comes};
use tokio::{sync::mpsc, task::JoinHandle};

/// What takes longer than a lease, at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_takes_a_while() {
    Together::default()
        .and(keep::a_held_lock_costs_a_renewal_per_third_of_its_duration)
        .and(keep::a_lease_that_lingers_serves_the_next_holder_for_nothing)
        .and(keep::a_lease_that_nobody_was_granted_does_not_linger)
        .and(wait::waiting_costs_at_most_a_call_per_second_however_many_wait)
        .and(wait::one_that_does_not_wait_costs_one_attempt)
        .and(counters::the_counters_show_what_the_proxy_saw)
        .end()
        .await;
}

/// A session that outlives everything here.
async fn connect(daemon: &Daemon) -> Client {
    let ttl = Duration::from_secs(60);
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(ttl).connect().await.unwrap()
}

/// Waits for a lock that is held, in a task of its own; it is in the queue when
/// this returns.
async fn queue(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let (tell, mut progress) = mpsc::unbounded_channel();
    let request = client.lock(name).on_progress(move |progress| {
        _ = tell.send(progress.position);
    });
    let waiter = tokio::spawn(request.acquire());
    comes("a place in the queue", async { while progress.recv().await.unwrap() == 0 {} }).await;
    waiter
}

/// Gives a lock back, and waits until its lease was released.
async fn release(scene: &Scene, guard: Guard) {
    let name = guard.name().to_owned();
    let before = scene.proxy.count(Kind::Release.of(&name));
    guard.release().await.unwrap();
    let released =
        |seen: &Seen| seen.kind == Kind::Release && seen.blob.ends_with(&name) && seen.is_over();
    comes("the release", scene.proxy.wait_for_many(before + 1, released)).await;
}

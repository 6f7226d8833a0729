//! An operator's mistakes, made with plain REST calls past the daemon: what is
//! stored is emptied, edited, deleted or put back to an old state, and leases
//! are broken by hand, while a lock is free and while it is held.

mod broken;
mod collected;
mod container;
mod deleted;
mod record;
use std::time::Duration;

use leasehold_client::{Client, Error, Guard, Reason};
use leasehold_test_support::{Daemon, proxy::Kind, rest::Blob};

use crate::scene::{Scene, Together, comes};

/// What waits for renewals and leases, at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_takes_a_while() {
    Together::default()
        .and(record::what_is_damaged_under_a_holder_is_lost_and_then_frozen)
        .and(record::a_token_that_went_back_freezes_the_lock_where_a_greater_one_was_seen)
        .and(record::those_who_wait_elsewhere_are_told_too)
        .and(deleted::a_blob_that_is_deleted_under_a_holder_is_lost_and_goes_on)
        .and(broken::a_lease_broken_by_hand_is_lost_at_the_next_renewal)
        .and(broken::a_lease_broken_with_a_period_goes_on_to_the_next_after_it)
        .and(broken::a_break_of_a_lock_held_elsewhere_is_told_noted_and_followed_by_a_greater_token)
        .and(broken::a_break_at_the_holders_own_daemon_is_told_at_once_and_noted)
        .and(container::a_container_that_is_deleted_is_missed_and_used_again_once_it_is_back)
        .end()
        .await;
}

/// A session that outlives everything here.
async fn connect(daemon: &Daemon) -> Client {
    let ttl = Duration::from_secs(60);
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(ttl).connect().await.unwrap()
}

/// Holds a lock for a moment: its blob is there, and the daemon knows it.
async fn use_once(scene: &Scene, client: &Client, name: &str) -> u64 {
    let before = scene.proxy.count(Kind::Release.of(name));
    let guard = client.lock(name).acquire().await.unwrap();
    let token = guard.token().get();
    guard.release().await.unwrap();
    let released = scene.proxy.wait_for_many(before + 1, |seen| {
        seen.kind == Kind::Release && seen.blob.ends_with(name) && seen.is_over()
    });
    comes("the release", released).await;
    token
}

/// The token of a grant that is given back at once.
async fn granted(client: &Client, name: &str) -> u64 {
    let guard = comes("the grant", client.lock(name).acquire()).await.unwrap();
    let token = guard.token().get();
    guard.release().await.unwrap();
    token
}

/// An acquire that must not be granted before an operator has looked; gives
/// what it is told.
async fn frozen(client: &Client, name: &str) -> String {
    let refused = comes("the refusal", client.lock(name).acquire()).await;
    told(refused, name)
}

/// What a person needs to know: which lock, which blob, what to do.
fn told(refused: Result<Guard, Error>, name: &str) -> String {
    let Err(Error::NeedsOperator { lock, message }) = refused else { panic!("{refused:?}") };
    assert_eq!(lock, name);
    assert!(message.contains(&format!("lock \"{name}\"")), "{message}");
    assert!(message.contains(&format!("blob locks/default/{name}")), "{message}");
    assert!(message.contains("Repair the blob, or delete it"), "{message}");
    message
}

/// The holder learns that it has lost its lease before its deadline has passed.
async fn lost(guard: &Guard) -> String {
    let loss = comes("the loss", guard.lost()).await;
    assert_eq!(loss.reason, Reason::LeaseLost, "{loss:?}");
    assert!(!guard.deadline().has_passed(), "it was not told but found out: {loss:?}");
    loss.message
}

/// Where nothing else is left, tokens go by the service's clock, which shows
/// whole seconds: so what was granted in the last two, by daemons that are not
/// asked, may be as great.
async fn the_services_clock_goes_on() {
    leasehold_runtime::sleep(Duration::from_millis(2_100)).await;
}

/// Only a holder may write to a leased blob; an operator breaks the lease first.
async fn break_by_hand(blob: &Blob) {
    blob.break_lease(Some(0)).await.ok();
}

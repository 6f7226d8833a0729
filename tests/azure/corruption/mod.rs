//! Corruption by an operator with REST calls that bypass the daemon: records are
//! emptied, edited, deleted or restored to an old state, and leases are broken,
//! while a lock is free and while it is held.

mod broken;
mod container;
mod deleted;
mod gc;
mod record;

use std::time::Duration;

use leasehold_client::{Client, Error, Guard, Reason};
use leasehold_test_support::{Daemon, proxy::Kind, rest::Blob};

use crate::fixture::{Fixture, Scenarios, wait_for};

/// Runs scenarios that wait for renewals and leases, concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_scenarios() {
    Scenarios::default()
        .start(record::record_corrupted_while_held_loses_then_freezes_lock)
        .start(record::regressed_token_freezes_lock_where_higher_was_seen)
        .start(record::waiters_at_peer_are_refused_when_lock_freezes)
        .start(deleted::blob_deleted_while_held_loses_lock_then_recovers)
        .start(broken::manually_broken_lease_is_lost_at_next_renewal)
        .start(broken::lease_broken_with_period_is_granted_after_period)
        .start(broken::peer_break_notifies_holder_and_records_operator)
        .start(broken::local_break_notifies_holder_and_records_operator)
        .start(container::deleted_container_is_reported_and_used_when_recreated)
        .join()
        .await;
}

/// Opens a session with a TTL longer than the test.
async fn connect(daemon: &Daemon) -> Client {
    let ttl = Duration::from_secs(60);
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(ttl).connect().await.unwrap()
}

/// Acquires and releases a lock. Afterwards its blob exists and is in the
/// daemon's cache.
async fn use_once(fixture: &Fixture, client: &Client, name: &str) -> u64 {
    let before = fixture.proxy.count(Kind::Release.of(name));
    let guard = client.lock(name).acquire().await.unwrap();
    let token = guard.token().get();
    guard.release().await.unwrap();
    let released = fixture.proxy.wait_for_many(before + 1, |call| {
        call.kind == Kind::Release && call.blob.ends_with(name) && call.is_done()
    });
    wait_for("the release", released).await;
    token
}

/// Acquires and releases a lock, and returns the token.
async fn granted(client: &Client, name: &str) -> u64 {
    let guard = wait_for("the grant", client.lock(name).acquire()).await.unwrap();
    let token = guard.token().get();
    guard.release().await.unwrap();
    token
}

/// Asserts that the lock is frozen, and returns the error message.
async fn frozen(client: &Client, name: &str) -> String {
    let refused = wait_for("the refusal", client.lock(name).acquire()).await;
    frozen_message(refused, name)
}

/// Returns the message of a frozen lock. Asserts that it names the lock, the
/// blob and the fix.
fn frozen_message(refused: Result<Guard, Error>, name: &str) -> String {
    let Err(Error::NeedsOperator { lock, message }) = refused else { panic!("{refused:?}") };
    assert_eq!(lock, name);
    assert!(message.contains(&format!("lock \"{name}\"")), "{message}");
    assert!(message.contains(&format!("blob locks/default/{name}")), "{message}");
    assert!(message.contains("Repair the blob, or delete it"), "{message}");
    message
}

/// Waits until the holder is notified of the loss of its lease, before its
/// deadline. Returns the message.
async fn lost(guard: &Guard) -> String {
    let loss = wait_for("the loss", guard.lost()).await;
    assert_eq!(loss.reason, Reason::LeaseLost, "{loss:?}");
    assert!(!guard.deadline().has_passed(), "the holder was not notified: {loss:?}");
    loss.message
}

/// Waits until new tokens are higher than earlier ones. Without a record, tokens
/// start at the service's Date, which has whole seconds. Tokens that other
/// daemons granted in the last two seconds may be as high.
async fn wait_for_storage_clock() {
    leasehold_runtime::sleep(Duration::from_millis(2_100)).await;
}

/// Only a holder may write to a leased blob; an operator breaks the lease first.
async fn break_manually(blob: &Blob) {
    blob.break_lease(Some(0)).await.ok();
}

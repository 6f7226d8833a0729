//! Deletion of a lock's blob.

use super::{break_manually, connect, granted, lost, use_once, wait_for_storage_clock};
use crate::fixture::{Fixture, wait_for};

#[tokio::test]
async fn blob_deleted_while_free_is_recreated_with_higher_token() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let mut highest = 0;
    for _ in 0..3 {
        let token = use_once(&fixture, &client, "a").await;
        assert!(token > highest, "tokens start over");
        highest = token;
        fixture.blob("a").delete().await.ok();
    }
    // The token is also higher at a daemon without a cached record.
    wait_for_storage_clock().await;
    let other = fixture.daemon(&[]);
    assert!(use_once(&fixture, &connect(&other).await, "a").await > highest);
}

pub(crate) async fn blob_deleted_while_held_loses_lock_then_recovers() {
    let fixture = Fixture::new().await;
    let (daemon, peer) = (fixture.daemon(&[]), fixture.daemon_direct(&[]));
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let blob = fixture.blob("a");
    assert_eq!(blob.delete().await.is(), (412, "LeaseIdMissing"), "its lease protects it");
    wait_for_storage_clock().await;
    break_manually(&blob).await;
    blob.delete().await.ok();
    // The next grant can be at either daemon.
    let other = connect(&peer).await;
    let next = wait_for("the grant", other.lock("a").acquire()).await.unwrap();
    assert!(next.token() > guard.token());
    lost(&guard).await;
    drop(guard);
    let token = next.token().get();
    next.release().await.unwrap();
    assert!(granted(&client, "a").await > token);
}

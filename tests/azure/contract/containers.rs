//! A lease on the container, which keeps it from being deleted.

use super::{A, B, container};

#[tokio::test]
async fn a_leased_container_is_deleted_only_with_its_lease_id() {
    let container = container("leased-container").await;
    container.acquire(A, 60).await.ok();
    assert_eq!(container.delete().await.is(), (412, "LeaseIdMissing"));
    let other = container.delete().lease(B).await;
    assert_eq!(other.is(), (412, "LeaseIdMismatchWithContainerOperation"));
    // Nothing else is in need of that id.
    let blob = container.blob("x");
    blob.put().await.ok();
    blob.acquire(B, 15).await.ok();
    blob.set_metadata().lease(B).await.ok();
    blob.release(B).await.ok();
    blob.delete().await.ok();
    container.list().await.ok();
    assert_eq!(container.delete().lease(A).await.status, 202);
    assert_eq!(container.head().await.is(), (404, "ContainerNotFound"));
}

#[tokio::test]
async fn two_who_use_the_same_id_keep_it_together() {
    let container = container("container-shared").await;
    for _ in 0..2 {
        let answer = container.acquire(A, 60).await;
        assert_eq!((answer.status, answer.lease_id()), (201, Some(A)));
    }
    assert_eq!(container.acquire(B, 60).await.is(), (409, "LeaseAlreadyPresent"));
    // Once somebody has broken it, it is theirs again when it has run out.
    container.break_lease(Some(60)).await.ok();
    let breaking = container.acquire(A, 60).await;
    assert_eq!(breaking.is(), (409, "LeaseIsBreakingAndCannotBeAcquired"));
    container.break_lease(Some(0)).await.ok();
    container.acquire(A, 60).await.ok();
}

#[tokio::test]
async fn a_deleted_container_takes_leased_blobs_along() {
    let container = container("container-delete").await;
    let blob = container.blob("x");
    blob.put().metadata("token", "1").await.ok();
    blob.acquire(A, 60).await.ok();
    container.delete().await.ok();
    assert_eq!(blob.renew(A).await.is(), (404, "ContainerNotFound"));
    // Azure: 409 ContainerBeingDeleted for half a minute or more.
    container.create().await.ok();
    assert_eq!(container.create().await.is(), (409, "ContainerAlreadyExists"));
    assert_eq!(blob.renew(A).await.is(), (404, "BlobNotFound"));
    blob.put().if_none_match("*").await.ok();
    assert_eq!(blob.head().await.lease_state(), "available");
}

//! Container leases, which protect a container from deletion.

use super::{A, B, container};

#[tokio::test]
async fn leased_container_delete_requires_lease_id() {
    let container = container("leased-container").await;
    container.acquire(A, 60).await.ok();
    assert_eq!(container.delete().await.is(), (412, "LeaseIdMissing"));
    let other = container.delete().lease(B).await;
    assert_eq!(other.is(), (412, "LeaseIdMismatchWithContainerOperation"));
    // No other call needs this ID.
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
async fn clients_with_same_lease_id_share_container_lease() {
    let container = container("container-shared").await;
    for _ in 0..2 {
        let reply = container.acquire(A, 60).await;
        assert_eq!((reply.status, reply.lease_id()), (201, Some(A)));
    }
    assert_eq!(container.acquire(B, 60).await.is(), (409, "LeaseAlreadyPresent"));
    // A broken lease can be acquired again with the same ID once it has ended.
    container.break_lease(Some(60)).await.ok();
    let breaking = container.acquire(A, 60).await;
    assert_eq!(breaking.is(), (409, "LeaseIsBreakingAndCannotBeAcquired"));
    container.break_lease(Some(0)).await.ok();
    container.acquire(A, 60).await.ok();
}

#[tokio::test]
async fn container_delete_removes_leased_blobs() {
    let container = container("container-delete").await;
    let blob = container.blob("x");
    blob.put().metadata("token", "1").await.ok();
    blob.acquire(A, 60).await.ok();
    container.delete().await.ok();
    assert_eq!(blob.renew(A).await.is(), (404, "ContainerNotFound"));
    // Azure returns 409 ContainerBeingDeleted for half a minute or more.
    container.create().await.ok();
    assert_eq!(container.create().await.is(), (409, "ContainerAlreadyExists"));
    assert_eq!(blob.renew(A).await.is(), (404, "BlobNotFound"));
    blob.put().if_none_match("*").await.ok();
    assert_eq!(blob.head().await.lease_state(), "available");
}

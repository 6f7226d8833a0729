//! Responses to a repeated call, as after a lost response.

use super::{A, B, container};

#[tokio::test]
async fn repeated_call_outcomes() {
    let blob = container("repetition").await.blob("locks/default/x");
    let create = blob.put().metadata("token", "0").if_none_match("*");
    create.clone().await.ok();
    // The response does not identify the client that created the blob.
    assert_eq!(create.await.is(), (409, "BlobAlreadyExists"));

    let acquire = blob.acquire(A, 60);
    acquire.clone().await.ok();
    let again = acquire.await;
    assert_eq!((again.status, again.lease_id()), (201, Some(A)));

    let etag = again.etag().to_owned();
    let write = blob.set_metadata().metadata("token", "1").lease(A).if_match(&etag);
    write.clone().await.ok();
    assert_eq!(
        write.await.is(),
        (412, "ConditionNotMet"),
        "even though the first write was applied"
    );
    assert_eq!(blob.head().await.metadata()["token"], "1");

    let renew = blob.renew(A);
    renew.clone().await.ok();
    assert_eq!(renew.await.status, 200);

    let change = blob.change(A, B);
    change.clone().await.ok();
    let again = change.await;
    assert_eq!((again.status, again.lease_id()), (200, Some(B)));

    let release = blob.release(B);
    release.clone().await.ok();
    assert_eq!(release.await.is(), (409, "LeaseIdMismatchWithLeaseOperation"));

    blob.acquire(A, 60).await.ok();
    let broken = blob.break_lease(Some(0));
    broken.clone().await.ok();
    assert_eq!(broken.await.status, 202);

    let delete = blob.delete();
    delete.clone().await.ok();
    assert_eq!(delete.await.is(), (404, "BlobNotFound"));
}

#[tokio::test]
async fn late_release_does_not_affect_next_lease() {
    let blob = container("late-release").await.blob("x");
    blob.put().await.ok();
    blob.acquire(A, 60).await.ok();
    blob.release(A).await.ok();
    blob.acquire(B, 60).await.ok();
    assert_eq!(blob.release(A).await.is(), (409, "LeaseIdMismatchWithLeaseOperation"));
    assert_eq!(blob.renew(A).await.is(), (409, "LeaseIdMismatchWithLeaseOperation"));
    assert_eq!(blob.renew(B).await.ok().lease_id(), Some(B));
    // A reused ID would end the next lease; every acquisition needs a new ID.
    blob.release(B).await.ok();
    blob.acquire(A, 60).await.ok();
    assert_eq!(blob.release(A).await.status, 200);
}

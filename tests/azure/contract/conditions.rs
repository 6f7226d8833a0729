//! ETags and conditional calls.

use leasehold_test_support::rest::{Blob, Call, Reply};

use super::{A, B, container};

async fn leased(container_name: &str) -> (Blob, Reply) {
    let blob = container(container_name).await.blob("locks/default/x");
    let put = blob.put().metadata("token", "1").await.ok();
    blob.acquire(A, 60).await.ok();
    (blob, put)
}

#[tokio::test]
async fn lease_calls_return_etag_and_date_without_changing_etag() {
    let blob = container("etag-lease").await.blob("locks/default/x");
    let etag = blob.put().await.ok().etag().to_owned();
    let modified = blob.head().await.ok().header("last-modified").unwrap().to_owned();
    let calls: [(Call, Option<&str>); 7] = [
        (blob.acquire(A, 15), Some(A)),
        (blob.acquire(A, 60), Some(A)),
        (blob.renew(A), Some(A)),
        (blob.change(A, B), Some(B)),
        (blob.break_lease(Some(60)), None),
        (blob.break_lease(None), None),
        (blob.release(B), None),
    ];
    for (call, id) in calls {
        let reply = call.await.ok();
        assert_eq!(reply.etag(), etag);
        assert_eq!(reply.header("last-modified"), Some(&*modified));
        assert_eq!(reply.lease_id(), id);
        assert!(reply.date() > 1_700_000_000, "{reply:?}");
        assert_eq!(blob.head().await.ok().etag(), etag);
    }
}

#[tokio::test]
async fn every_write_returns_new_etag() {
    let (blob, put) = leased("etag-write").await;
    let mut seen = vec![put.etag().to_owned()];
    for _ in 0..20 {
        // Even a write of the same value changes the ETag.
        let write = blob.set_metadata().metadata("token", "2").lease(A);
        let reply = write.if_match(seen.last().unwrap()).await.ok();
        assert!(!seen.contains(&reply.etag().to_owned()), "repeated ETag");
        assert_eq!(blob.head().await.etag(), reply.etag());
        seen.push(reply.etag().to_owned());
    }
    blob.release(A).await.ok();
    blob.delete().await.ok();
    let recreated = blob.put().metadata("token", "2").await.ok();
    assert!(!seen.contains(&recreated.etag().to_owned()), "repeated ETag of the deleted blob");
}

#[tokio::test]
async fn calls_with_old_etag_are_refused() {
    let (blob, old) = leased("etag-old").await;
    let new = blob.set_metadata().metadata("token", "2").lease(A).await.ok();
    let (old, new) = (old.etag(), new.etag());
    let not_met = (412, "ConditionNotMet");
    assert_eq!(blob.set_metadata().lease(A).if_match(old).await.is(), not_met);
    assert_eq!(blob.renew(A).if_match(old).await.is(), not_met);
    assert_eq!(blob.acquire(A, 60).if_match(old).await.is(), not_met);
    assert_eq!(blob.delete().lease(A).if_match(old).await.is(), not_met);
    assert_eq!(blob.release(A).if_match(old).await.is(), not_met);
    assert_eq!(blob.head().await.metadata()["token"], "2");
    blob.renew(A).if_match(new).await.ok();
    blob.set_metadata().lease(A).if_match(new).await.ok();
}

#[tokio::test]
async fn etag_mismatch_masks_lease_id_mismatch() {
    let (blob, put) = leased("etag-and-lease").await;
    // This code therefore does not prove that the lease is still held.
    let both = blob.set_metadata().lease(B).if_match("\"0x0\"").await;
    assert_eq!(both.is(), (412, "ConditionNotMet"));
    let lease = blob.set_metadata().lease(B).if_match(put.etag()).await;
    assert_eq!(lease.is(), (412, "LeaseIdMismatchWithBlobOperation"));
}

#[tokio::test]
async fn leased_blob_is_not_deleted_by_etag() {
    let (blob, put) = leased("delete").await;
    assert_eq!(blob.delete().if_match(put.etag()).await.is(), (412, "LeaseIdMissing"));
    blob.release(A).await.ok();
    assert_eq!(blob.delete().if_match("\"0x0\"").await.is(), (412, "ConditionNotMet"));
    assert_eq!(blob.delete().if_match(put.etag()).await.status, 202);
    assert_eq!(blob.head().await.is(), (404, "BlobNotFound"));
}

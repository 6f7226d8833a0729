//! Blobs.

use leasehold_client::Token;
use leasehold_fence::blob::{Blob, Error};

use super::{A, B, account, container, lock_token};

#[tokio::test]
async fn blob_last_writer_wins() {
    let blob = container("blob-last").await.blob("b");
    for text in ["first", "second"] {
        assert_eq!(blob.put().body(text).await.is(), (201, ""));
    }
    assert_eq!(blob.get().await.ok().body, "second");
}

#[tokio::test]
async fn blob_optimistic() {
    let blob = container("blob-etag").await.blob("b");
    let read = blob.put().body("first").await.ok();
    blob.put().body("second").if_match(read.etag()).await.ok();
    let late = blob.put().body("late").if_match(read.etag()).await;
    assert_eq!(late.is(), (412, "ConditionNotMet"));
    let create = blob.put().body("late").if_none_match("*").await;
    assert_eq!(create.is(), (409, "BlobAlreadyExists"));
    assert_eq!(blob.get().await.ok().body, "second");
}

#[tokio::test]
async fn blob_pessimistic() {
    let blob = container("blob-lease").await.blob("b");
    blob.put().body("first").await.ok();
    blob.acquire(A, 15).await.ok();
    assert_eq!(blob.acquire(B, 15).await.is(), (409, "LeaseAlreadyPresent"));
    assert_eq!(blob.put().body("x").await.is(), (412, "LeaseIdMissing"));
    let other = blob.put().body("x").lease(B).await;
    assert_eq!(other.is(), (412, "LeaseIdMismatchWithBlobOperation"));
    assert_eq!(blob.delete().await.is(), (412, "LeaseIdMissing"));
    blob.put().body("second").lease(A).await.ok();
    assert_eq!(blob.get().await.ok().body, "second", "reading needs no lease");
    // After the lease has ended, its ID is refused.
    blob.break_lease(Some(0)).await.ok();
    assert_eq!(blob.put().body("late").lease(A).await.status, 412);
}

#[tokio::test]
async fn blob_leasehold() {
    container("blob-fence").await;
    let blob = Blob::new(&account(), "blob-fence", "b").unwrap();
    let old = blob.fenced(lock_token(1)).await.unwrap();
    old.write("first").await.unwrap();
    let new = blob.fenced(lock_token(2)).await.unwrap();
    assert!(
        matches!(old.write("late").await, Err(Error::Fenced { newer, .. }) if newer == Some(Token::new(2)))
    );
    new.delete().await.unwrap();
    assert!(
        matches!(old.create("late").await, Err(Error::Fenced { newer, .. }) if newer == Some(Token::new(2)))
    );
}

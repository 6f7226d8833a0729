//! Containers.

use hyper::Method;
use leasehold_client::Token;
use leasehold_fence::blob::{Blob, Error};
use leasehold_test_support::{azurite::Azurite, rest::Rest};

use super::{A, B, account, container, lock_token};

/// Replaces the container's metadata.
fn set(name: &str, value: &str) -> leasehold_test_support::rest::Call {
    let call = Rest::new(Azurite::shared()).call(Method::PUT, name);
    call.query("restype", "container").query("comp", "metadata").metadata("owner", value)
}

#[tokio::test]
async fn container_last_writer_wins() {
    let container = container("container-last").await;
    for owner in ["first", "second"] {
        set("container-last", owner).await.ok();
    }
    assert_eq!(container.head().await.ok().metadata()["owner"], "second");
}

#[tokio::test]
async fn container_optimistic() {
    let container = container("container-date").await;
    let (past, future) = ("Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT");
    let late = set("container-date", "late").header("if-modified-since", future).await;
    assert_eq!(late.status, 412, "{late:?}");
    let late = container.delete().header("if-unmodified-since", past).await;
    assert_eq!(late.is(), (412, "ConditionNotMet"));
    assert!(!container.head().await.ok().metadata().contains_key("owner"));
}

#[tokio::test]
async fn container_pessimistic() {
    let container = container("container-lease").await;
    container.acquire(A, 15).await.ok();
    assert_eq!(container.acquire(B, 15).await.is(), (409, "LeaseAlreadyPresent"));
    assert_eq!(container.delete().await.is(), (412, "LeaseIdMissing"));
    let other = container.delete().lease(B).await;
    assert_eq!(other.is(), (412, "LeaseIdMismatchWithContainerOperation"));
    // The lease protects the container from deletion, but not its blobs.
    container.blob("b").put().body("without lease").await.ok();
    container.blob("b").delete().await.ok();
    container.delete().lease(A).await.ok();
}

#[tokio::test]
async fn container_leasehold() {
    container("container-fence").await;
    // There is one lock for the container, and a fence in each blob.
    let blob = |name| Blob::new(&account(), "container-fence", name).unwrap();
    let old = blob("a").fenced(lock_token(1)).await.unwrap();
    let untouched = blob("b").fenced(lock_token(1)).await.unwrap();
    blob("a").fenced(lock_token(2)).await.unwrap();
    assert!(
        matches!(old.write("late").await, Err(Error::Fenced { newer, .. }) if newer == Some(Token::new(2)))
    );
    untouched.write("no newer fence in this blob").await.unwrap();
}

//! Refused calls: wrong key, missing container or blob, unknown version.

use leasehold_test_support::{azurite::Azurite, rest::Rest};

use super::{A, container};

#[tokio::test]
async fn wrong_key_is_forbidden() {
    container("wrong-key").await.blob("x").put().await.ok();
    let container = Rest::new(Azurite::shared()).with_key("d3Jvbmc=").container("wrong-key");
    let blob = container.blob("x");
    // Azure returns AuthenticationFailed, also for a request signed more than
    // 15 minutes ago, which Azurite accepts.
    for call in [container.head(), container.list(), blob.head(), blob.acquire(A, 15)] {
        assert_eq!(call.clone().await.is(), (403, "AuthorizationFailure"), "{call:?}");
    }
}

#[tokio::test]
async fn missing_container_is_not_found() {
    let container = Rest::new(Azurite::shared()).container("missing");
    let blob = container.blob("locks/default/x");
    for call in [
        container.head(),
        container.delete(),
        container.list(),
        container.acquire(A, 15),
        blob.head(),
        blob.put().if_none_match("*"),
        blob.set_metadata().lease(A).if_match("\"0x1\""),
        blob.acquire(A, 15),
        blob.renew(A),
        blob.release(A),
        blob.break_lease(None),
        blob.delete(),
    ] {
        assert_eq!(call.clone().await.is(), (404, "ContainerNotFound"), "{call:?}");
    }
}

#[tokio::test]
async fn missing_blob_is_not_found() {
    let blob = container("no-blob").await.blob("locks/default/x");
    for call in [
        blob.head(),
        blob.set_metadata().lease(A),
        blob.acquire(A, 15),
        blob.renew(A),
        blob.change(A, super::B),
        blob.release(A),
        blob.break_lease(None),
        blob.delete(),
    ] {
        assert_eq!(call.clone().await.is(), (404, "BlobNotFound"), "{call:?}");
    }
    // With a condition, the condition fails. After a 412 the caller must
    // therefore check whether the blob exists.
    for call in [blob.set_metadata().lease(A), blob.acquire(A, 15), blob.delete()] {
        let reply = call.clone().if_match("\"0x1\"").await;
        assert_eq!(reply.is(), (412, "ConditionNotMet"), "{call:?}");
    }
}

#[tokio::test]
async fn unknown_protocol_version_is_refused() {
    // The SDK's default version, which is why an older version is configured.
    let call = container("version").await.head().header("x-ms-version", "2026-04-06");
    assert_eq!(call.await.is(), (400, "InvalidHeaderValue"));
}

#[tokio::test]
async fn restarted_emulator_keeps_blobs_and_leases() {
    let mut azurite = Azurite::start();
    let container = Rest::new(&azurite).container("stopped");
    container.create().await.ok();
    let blob = container.blob("x");
    let put = blob.put().metadata("token", "1").await.ok();
    blob.acquire(A, 60).await.ok();
    azurite.stop();
    assert!(blob.renew(A).send().await.unwrap_err().is_connect());
    azurite.restart();
    let renewed = blob.renew(A).await.ok();
    assert_eq!((renewed.etag(), renewed.lease_id()), (put.etag(), Some(A)));
    assert_eq!(blob.head().await.metadata()["token"], "1");
}

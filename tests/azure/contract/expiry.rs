//! Lease expiry.

use leasehold_test_support::{
    rest::{Blob, Container},
    until,
};
use std::time::Duration;

use super::{A, B, container, wait_for_state};

/// Minimum lease duration in seconds.
const MIN_SECONDS: i64 = 15;

const MISMATCH: (u16, &str) = (409, "LeaseIdMismatchWithLeaseOperation");

/// Runs all cases concurrently, because each waits for its lease to expire.
#[tokio::test]
async fn lease_expiry() {
    let container = container("expiry").await;
    tokio::join!(
        expired_untouched_lease_is_renewable(&container),
        expired_lease_is_not_renewable_after_write(&container),
        expired_lease_is_not_renewable_after_next_lease(&container),
        azurite_renews_expired_lease_for_any_id(&container),
        renewal_restarts_full_duration(&container),
        reacquire_sets_new_duration(&container),
        break_without_period_lets_lease_expire(&container),
        listing_reports_expired_state(&container),
        container_lease_expires(),
    );
}

async fn leased(container: &Container, name: &str) -> Blob {
    let blob = container.blob(name);
    blob.put().metadata("token", "1").await.ok();
    blob.acquire(A, MIN_SECONDS).await.ok();
    blob
}

async fn expired(container: &Container, name: &str) -> Blob {
    let blob = leased(container, name).await;
    expires(&blob).await;
    blob
}

async fn expires(blob: &Blob) {
    leasehold_runtime::sleep(Duration::from_secs(MIN_SECONDS as u64)).await;
    wait_for_state(blob, "expired").await;
}

async fn expired_untouched_lease_is_renewable(container: &Container) {
    let blob = leased(container, "untouched").await;
    // A write under the lease itself does not prevent the renewal.
    blob.set_metadata().metadata("token", "2").lease(A).await.ok();
    expires(&blob).await;
    assert_eq!(blob.renew(A).await.ok().lease_id(), Some(A));
    assert_eq!(blob.head().await.lease_state(), "leased");
}

async fn expired_lease_is_not_renewable_after_write(container: &Container) {
    let blob = expired(container, "written").await;
    blob.set_metadata().metadata("token", "2").await.ok();
    assert_eq!(blob.renew(A).await.is(), MISMATCH);
    assert_eq!(blob.release(A).await.is(), MISMATCH);
}

async fn expired_lease_is_not_renewable_after_next_lease(container: &Container) {
    let blob = expired(container, "leased-again").await;
    // Azure may refuse this acquire for up to another minute.
    blob.acquire(B, MIN_SECONDS).await.ok();
    assert_eq!(blob.renew(A).await.is(), MISMATCH);
    blob.release(B).await.ok();
    assert_eq!(blob.renew(A).await.is(), MISMATCH);
}

/// Azure returns 409. A response is therefore valid only for the ID in it.
async fn azurite_renews_expired_lease_for_any_id(container: &Container) {
    let blob = expired(container, "foreign").await;
    let renewed = blob.renew(B).await;
    assert_eq!((renewed.status, renewed.lease_id()), (200, Some(A)));
    assert_eq!(blob.renew(B).await.is(), MISMATCH, "after the renewal");
}

async fn renewal_restarts_full_duration(container: &Container) {
    let blob = leased(container, "renewed").await;
    for _ in 0..=MIN_SECONDS {
        leasehold_runtime::sleep(Duration::from_secs(1)).await;
        assert_eq!(blob.head().await.lease_state(), "leased");
        blob.renew(A).await.ok();
    }
    assert_eq!(blob.head().await.lease_state(), "leased");
}

async fn reacquire_sets_new_duration(container: &Container) {
    let blob = leased(container, "prolonged").await;
    blob.acquire(A, 60).await.ok();
    leasehold_runtime::sleep(Duration::from_secs(MIN_SECONDS as u64 + 1)).await;
    assert_eq!(blob.head().await.lease_state(), "leased");
    blob.acquire(A, MIN_SECONDS).await.ok();
    let broken = blob.break_lease(None).await.ok();
    let remaining: i64 = broken.header("x-ms-lease-time").unwrap().parse().unwrap();
    assert!(remaining <= MIN_SECONDS, "{remaining} s");
}

async fn break_without_period_lets_lease_expire(container: &Container) {
    let blob = leased(container, "broken").await;
    blob.break_lease(None).await.ok();
    assert_eq!(blob.acquire(B, 15).await.is(), (409, "LeaseAlreadyPresent"));
    assert_eq!(blob.set_metadata().await.is(), (412, "LeaseIdMissing"));
    blob.set_metadata().metadata("token", "2").lease(A).await.ok();
    wait_for_state(&blob, "broken").await;
    let late = blob.set_metadata().lease(A).await;
    assert_eq!(late.is(), (412, "LeaseNotPresentWithBlobOperation"));
    assert_eq!(blob.renew(A).await.is(), (409, "LeaseIsBrokenAndCannotBeRenewed"));
    blob.acquire(B, 15).await.ok();
}

/// The listing is correct even without a call on the blob since the expiry.
async fn listing_reports_expired_state(container: &Container) {
    leased(container, "listed").await;
    leasehold_runtime::sleep(Duration::from_secs(MIN_SECONDS as u64)).await;
    until(async || {
        let listed = container.list().query("prefix", "listed").await.ok().listed();
        (listed[0].element("LeaseState") == Some("expired")).then_some(())
    })
    .await;
}

async fn container_lease_expires() {
    let container = super::container("expiry-container").await;
    container.acquire(A, MIN_SECONDS).await.ok();
    assert_eq!(container.delete().await.is(), (412, "LeaseIdMissing"));
    leasehold_runtime::sleep(Duration::from_secs(MIN_SECONDS as u64)).await;
    until(async || (container.delete().await.status == 202).then_some(())).await;
}

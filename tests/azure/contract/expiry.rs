//! What happens when a lease runs out.

use leasehold_test_support::{
    rest::{Blob, Container},
    until,
};
use std::time::Duration;

use super::{A, B, container, reaches};

/// The shortest lease, in seconds.
const SHORTEST: i64 = 15;

const MISMATCH: (u16, &str) = (409, "LeaseIdMismatchWithLeaseOperation");

/// All at the same time, because each waits for its lease to run out.
#[tokio::test]
async fn a_lease_runs_out() {
    let container = container("expiry").await;
    tokio::join!(
        its_holder_renews_it_if_nobody_came(&container),
        nobody_renews_it_after_a_write(&container),
        nobody_renews_it_after_another_lease(&container),
        azurite_renews_it_for_anybody_under_the_old_id(&container),
        each_renewal_lasts_as_long_as_the_lease(&container),
        acquired_again_it_lasts_as_long_as_said_last(&container),
        a_break_lets_it_run_out(&container),
        a_listing_shows_it(&container),
        the_containers_lease_runs_out_too(),
    );
}

async fn leased(container: &Container, name: &str) -> Blob {
    let blob = container.blob(name);
    blob.put().metadata("token", "1").await.ok();
    blob.acquire(A, SHORTEST).await.ok();
    blob
}

async fn expired(container: &Container, name: &str) -> Blob {
    let blob = leased(container, name).await;
    expires(&blob).await;
    blob
}

async fn expires(blob: &Blob) {
    leasehold_runtime::sleep(Duration::from_secs(SHORTEST as u64)).await;
    reaches(blob, "expired").await;
}

async fn its_holder_renews_it_if_nobody_came(container: &Container) {
    let blob = leased(container, "untouched").await;
    // What was written under the lease itself does not count.
    blob.set_metadata().metadata("token", "2").lease(A).await.ok();
    expires(&blob).await;
    assert_eq!(blob.renew(A).await.ok().lease_id(), Some(A));
    assert_eq!(blob.head().await.lease_state(), "leased");
}

async fn nobody_renews_it_after_a_write(container: &Container) {
    let blob = expired(container, "written").await;
    blob.set_metadata().metadata("token", "2").await.ok();
    assert_eq!(blob.renew(A).await.is(), MISMATCH);
    assert_eq!(blob.release(A).await.is(), MISMATCH);
}

async fn nobody_renews_it_after_another_lease(container: &Container) {
    let blob = expired(container, "leased-again").await;
    // Azure may refuse this for up to a minute more.
    blob.acquire(B, SHORTEST).await.ok();
    assert_eq!(blob.renew(A).await.is(), MISMATCH);
    blob.release(B).await.ok();
    assert_eq!(blob.renew(A).await.is(), MISMATCH);
}

/// Azure: 409. So an answer counts only for the id that it names.
async fn azurite_renews_it_for_anybody_under_the_old_id(container: &Container) {
    let blob = expired(container, "foreign").await;
    let renewed = blob.renew(B).await;
    assert_eq!((renewed.status, renewed.lease_id()), (200, Some(A)));
    assert_eq!(blob.renew(B).await.is(), MISMATCH, "now that it is leased again");
}

async fn each_renewal_lasts_as_long_as_the_lease(container: &Container) {
    let blob = leased(container, "renewed").await;
    for _ in 0..=SHORTEST {
        leasehold_runtime::sleep(Duration::from_secs(1)).await;
        assert_eq!(blob.head().await.lease_state(), "leased");
        blob.renew(A).await.ok();
    }
    assert_eq!(blob.head().await.lease_state(), "leased");
}

async fn acquired_again_it_lasts_as_long_as_said_last(container: &Container) {
    let blob = leased(container, "prolonged").await;
    blob.acquire(A, 60).await.ok();
    leasehold_runtime::sleep(Duration::from_secs(SHORTEST as u64 + 1)).await;
    assert_eq!(blob.head().await.lease_state(), "leased");
    blob.acquire(A, SHORTEST).await.ok();
    let lasts = blob.break_lease(None).await.ok();
    let lasts: i64 = lasts.header("x-ms-lease-time").unwrap().parse().unwrap();
    assert!(lasts <= SHORTEST, "{lasts} s");
}

async fn a_break_lets_it_run_out(container: &Container) {
    let blob = leased(container, "broken").await;
    blob.break_lease(None).await.ok();
    assert_eq!(blob.acquire(B, 15).await.is(), (409, "LeaseAlreadyPresent"));
    assert_eq!(blob.set_metadata().await.is(), (412, "LeaseIdMissing"));
    blob.set_metadata().metadata("token", "2").lease(A).await.ok();
    reaches(&blob, "broken").await;
    let late = blob.set_metadata().lease(A).await;
    assert_eq!(late.is(), (412, "LeaseNotPresentWithBlobOperation"));
    assert_eq!(blob.renew(A).await.is(), (409, "LeaseIsBrokenAndCannotBeRenewed"));
    blob.acquire(B, 15).await.ok();
}

/// Although nobody has touched the blob since.
async fn a_listing_shows_it(container: &Container) {
    leased(container, "listed").await;
    leasehold_runtime::sleep(Duration::from_secs(SHORTEST as u64)).await;
    until(async || {
        let listed = container.list().query("prefix", "listed").await.ok().listed();
        (listed[0].element("LeaseState") == Some("expired")).then_some(())
    })
    .await;
}

async fn the_containers_lease_runs_out_too() {
    let container = super::container("expiry-container").await;
    container.acquire(A, SHORTEST).await.ok();
    assert_eq!(container.delete().await.is(), (412, "LeaseIdMissing"));
    leasehold_runtime::sleep(Duration::from_secs(SHORTEST as u64)).await;
    until(async || (container.delete().await.status == 202).then_some(())).await;
}

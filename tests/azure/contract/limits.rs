//! How long leases and breaks last, and which ids are taken.

use super::{A, B, container};

#[tokio::test]
async fn a_lease_lasts_15_to_60_seconds_or_for_ever() {
    let container = container("durations").await;
    for (seconds, taken) in
        [(15, true), (60, true), (-1, true), (14, false), (61, false), (0, false), (-2, false)]
    {
        let blob = container.blob(&seconds.to_string());
        blob.put().await.ok();
        let expected = if taken { (201, "") } else { (400, "InvalidHeaderValue") };
        assert_eq!(blob.acquire(A, seconds).await.is(), expected, "{seconds} s");
        assert_eq!(blob.head().await.lease_state(), if taken { "leased" } else { "available" });
    }
}

#[tokio::test]
async fn a_break_tells_how_long_the_lease_still_lasts_and_never_lengthens_it() {
    let blob = container("breaks").await.blob("x");
    blob.put().await.ok();
    let lasts = async |period| {
        let answer = blob.break_lease(period).await.ok();
        answer.header("x-ms-lease-time").unwrap().parse::<u32>().unwrap()
    };
    blob.acquire(A, 30).await.ok();
    let whole = lasts(None).await;
    assert!((1..=30).contains(&whole), "{whole} s");
    assert!(lasts(Some(60)).await <= whole);
    assert!(lasts(Some(10)).await <= 10);
    assert!(lasts(None).await <= 10);
    assert_eq!(lasts(Some(0)).await, 0);
    assert_eq!(lasts(None).await, 0, "it is broken already");
    blob.acquire(A, 30).await.ok();
    assert_eq!(blob.break_lease(Some(61)).await.is(), (400, "InvalidHeaderValue"));
}

/// Azure takes GUIDs only, and does not care about their case. Lower-case GUIDs
/// are the same to both.
#[tokio::test]
async fn azurite_takes_any_id_and_most_calls_care_about_its_case() {
    let container = container("ids").await;
    let blob = container.blob("no-guid");
    blob.put().await.ok();
    assert_eq!(blob.acquire("no-guid", 15).await.ok().lease_id(), Some("no-guid"));

    let blob = container.blob("case");
    blob.put().await.ok();
    blob.acquire(A, 15).await.ok();
    let upper = A.to_uppercase();
    assert_eq!(blob.acquire(&upper, 15).await.is(), (409, "LeaseAlreadyPresent"));
    for call in [blob.renew(&upper), blob.change(&upper, B), blob.release(&upper)] {
        let answer = call.clone().await;
        assert_eq!(answer.is(), (409, "LeaseIdMismatchWithLeaseOperation"), "{call:?}");
    }
    assert_eq!(blob.set_metadata().lease(&upper).await.status, 200);
}

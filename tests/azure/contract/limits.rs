//! Durations of leases and breaks, and accepted lease IDs.

use super::{A, B, container};

#[tokio::test]
async fn lease_duration_is_15_to_60_seconds_or_infinite() {
    let container = container("durations").await;
    for (seconds, accepted) in
        [(15, true), (60, true), (-1, true), (14, false), (61, false), (0, false), (-2, false)]
    {
        let blob = container.blob(&seconds.to_string());
        blob.put().await.ok();
        let expected = if accepted { (201, "") } else { (400, "InvalidHeaderValue") };
        assert_eq!(blob.acquire(A, seconds).await.is(), expected, "{seconds} s");
        assert_eq!(blob.head().await.lease_state(), if accepted { "leased" } else { "available" });
    }
}

#[tokio::test]
async fn break_returns_remaining_time_and_never_extends() {
    let blob = container("breaks").await.blob("x");
    blob.put().await.ok();
    let remaining_after_break = async |period| {
        let reply = blob.break_lease(period).await.ok();
        reply.header("x-ms-lease-time").unwrap().parse::<u32>().unwrap()
    };
    blob.acquire(A, 30).await.ok();
    let remaining = remaining_after_break(None).await;
    assert!((1..=30).contains(&remaining), "{remaining} s");
    assert!(remaining_after_break(Some(60)).await <= remaining);
    assert!(remaining_after_break(Some(10)).await <= 10);
    assert!(remaining_after_break(None).await <= 10);
    assert_eq!(remaining_after_break(Some(0)).await, 0);
    assert_eq!(remaining_after_break(None).await, 0, "already broken");
    blob.acquire(A, 30).await.ok();
    assert_eq!(blob.break_lease(Some(61)).await.is(), (400, "InvalidHeaderValue"));
}

/// Azure accepts only GUIDs and ignores their case. Lowercase GUIDs behave the
/// same in both.
#[tokio::test]
async fn azurite_accepts_any_lease_id_mostly_case_sensitive() {
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
        let reply = call.clone().await;
        assert_eq!(reply.is(), (409, "LeaseIdMismatchWithLeaseOperation"), "{call:?}");
    }
    assert_eq!(blob.set_metadata().lease(&upper).await.status, 200);
}

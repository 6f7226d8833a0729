//! Of many concurrent calls, exactly one succeeds.

use leasehold_test_support::rest::Call;
use tokio::task::JoinSet;

use super::{A, container};

/// Makes all calls concurrently and returns the number of successful ones.
/// Asserts that the others failed with the given error.
async fn winners(calls: impl Iterator<Item = Call>, refused: (u16, &str)) -> usize {
    let mut running = JoinSet::new();
    for call in calls {
        running.spawn(call.into_future());
    }
    let replies = running.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status < 300);
    assert!(lost.iter().all(|reply| reply.is() == refused), "{lost:?}");
    won.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_acquires_have_one_winner() {
    let blob = container("race-acquire").await.blob("x");
    blob.put().await.ok();
    let id = |number| format!("00000000-0000-4000-8000-0000000000{number}");
    let calls = (10..42).map(|number| blob.acquire(&id(number), 15));
    assert_eq!(winners(calls, (409, "LeaseAlreadyPresent")).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_conditional_writes_have_one_winner() {
    let blob = container("race-write").await.blob("x");
    let put = blob.put().await.ok();
    blob.acquire(A, 15).await.ok();
    let calls = (0..32).map(|number| {
        let write = blob.set_metadata().metadata("token", &number.to_string());
        write.lease(A).if_match(put.etag())
    });
    assert_eq!(winners(calls, (412, "ConditionNotMet")).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_have_one_winner() {
    let blob = container("race-create").await.blob("x");
    let calls = (0..32).map(|_| blob.put().if_none_match("*"));
    assert_eq!(winners(calls, (409, "BlobAlreadyExists")).await, 1);
}

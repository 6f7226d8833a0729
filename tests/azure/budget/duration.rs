//! Requested lease durations that the storage supports are used.

use std::time::Duration;

use leasehold_client::Error;
use leasehold_test_support::proxy::Kind;

use super::{connect, release};
use crate::fixture::Fixture;

#[tokio::test]
async fn requested_lease_duration_reaches_storage() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (duration, expected) in
        [(None, 15), (seconds(45), 45), (seconds(60), 60), (seconds(15), 15)]
    {
        fixture.proxy.clear();
        let request = client.lock("a");
        let request = match duration {
            Some(duration) => request.lease_duration(duration),
            None => request,
        };
        let guard = request.acquire().await.unwrap();
        let acquires = fixture.calls("a").into_iter().filter(|call| call.kind == Kind::Acquire);
        for acquire in acquires {
            assert_eq!(acquire.lease_seconds, Some(expected));
        }
        release(&fixture, guard).await;
    }
}

#[tokio::test]
async fn unsupported_lease_duration_is_refused_locally() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    for millis in [0, 14_000, 15_500, 60_001, 61_000, 3_600_000] {
        let request = client.lock("a").lease_duration(Duration::from_millis(millis));
        let refused = request.acquire().await.unwrap_err();
        let Error::Invalid { field, message } = &refused else { panic!("{refused:?}") };
        assert_eq!(field, "lease_duration_ms");
        assert!(message.contains("from 15s to 60s"), "{message}");
    }
    let output = daemon.run(&["lock", "a", "--lease-duration", "14s", "--", "true"]);
    assert_eq!(output.status.code(), Some(65));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("--lease-duration 14s") && error.contains("from 15s"), "{error}");
    assert!(fixture.proxy.calls().is_empty());
}

//! The duration of a lease is the one that was asked for, where it is one that
//! the storage takes.

use std::time::Duration;

use leasehold_client::Error;
use leasehold_test_support::proxy::Kind;

use super::{connect, release};
use crate::scene::Scene;

#[tokio::test]
async fn the_duration_that_was_asked_for_reaches_the_storage() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let asked = |seconds| Some(Duration::from_secs(seconds));
    for (duration, expected) in [(None, 15), (asked(45), 45), (asked(60), 60), (asked(15), 15)] {
        scene.proxy.clear();
        let request = client.lock("a");
        let request = match duration {
            Some(duration) => request.lease_duration(duration),
            None => request,
        };
        let guard = request.acquire().await.unwrap();
        let acquires = scene.calls("a").into_iter().filter(|call| call.kind == Kind::Acquire);
        for acquire in acquires {
            assert_eq!(acquire.lease_seconds, Some(expected));
        }
        release(&scene, guard).await;
    }
}

#[tokio::test]
async fn a_duration_that_the_storage_would_not_take_is_refused_without_a_call() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    for millis in [0, 14_000, 15_500, 60_001, 61_000, 3_600_000] {
        let request = client.lock("a").lease_duration(Duration::from_millis(millis));
        let refused = request.acquire().await.unwrap_err();
        let Error::Invalid { field, message } = &refused else { panic!("{refused:?}") };
        assert_eq!(field, "lease_duration_ms");
        assert!(message.contains("from 15s to 1m"), "{message}");
    }
    let output = daemon.run(&["lock", "a", "--lease-duration", "14s", "--", "true"]);
    assert_eq!(output.status.code(), Some(65));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--lease-duration 14s") && said.contains("from 15s"), "{said}");
    assert!(scene.proxy.calls().is_empty());
}

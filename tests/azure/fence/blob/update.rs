//! Updates of a blob without a fence.

use std::time::Duration;

use leasehold_fence::blob::{Blob, Content, ETag, Error, Upload};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};

use super::{blob, blob_via_proxy, direct, held, proxy, text};

fn more(content: Option<&Content>) -> Option<Upload> {
    let Some(content) = content else { return Some(Upload::new("1")) };
    let count: u64 = std::str::from_utf8(&content.bytes).unwrap().parse().unwrap();
    Some(content.with((count + 1).to_string()))
}

async fn count(blob: &Blob) -> Result<Option<ETag>, Error> {
    blob.update(more).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_updates_are_not_lost() {
    let blob = blob("counter").await;
    let counting: Vec<_> = (0..8)
        .map(|_| {
            let blob = blob.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    count(&blob).await.unwrap().unwrap();
                }
            })
        })
        .collect();
    for task in counting {
        task.await.unwrap();
    }
    assert_eq!(text(&blob).await.as_deref(), Some("40"));
    let before = blob.read().await.unwrap().unwrap().etag;
    assert_eq!(blob.update(|_| None).await.unwrap(), None);
    assert_eq!(blob.read().await.unwrap().unwrap().etag, before);
}

#[tokio::test]
async fn update_is_applied_once_despite_faults() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "counteronce", Duration::from_secs(1)).await;
    let faults = [
        Fault::DropResponse,
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
        Fault::Reset,
        Fault::Swallow,
        Fault::Duplicate { after: Duration::ZERO },
    ];
    for (before, fault) in faults.into_iter().enumerate() {
        proxy.when(Kind::Create).times(1).then(fault);
        count(&blob).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(text(&blob).await, Some((before + 1).to_string()), "{fault:?}");
    }
}

#[tokio::test]
async fn fenced_or_leased_blob_is_not_updated() {
    let fenced = blob("updatefenced").await;
    held(&fenced, 1).await.write("1").await.unwrap();
    for error in [
        count(&fenced).await.map(drop).unwrap_err(),
        fenced.lease(Duration::from_secs(15)).await.map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("is fenced by lock"), "{error}");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    assert_eq!(direct("updatefenced").head().await.lease_state(), "available");
    let leased = blob("updateleased").await;
    leased.create("1").await.unwrap();
    let lease = leased.lease(Duration::from_secs(15)).await.unwrap();
    let error = count(&leased).await.unwrap_err();
    assert!(error.to_string().contains("another client has leased the blob"), "{error}");
    lease.release().await.unwrap();
    count(&leased).await.unwrap();
}

//! A blob that one writer has by its own lease.

use leasehold_fence::blob::{Conflict, Error};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};
use std::time::Duration;

use super::{blob, blob_behind, past, proxy, text};

const LEASE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn nobody_else_writes_while_it_is_leased() {
    let blob = blob("leased").await;
    let error = blob.lease(LEASE).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::Missing, .. }), "{error}");
    blob.create("0").await.unwrap();
    let lease = blob.lease(LEASE).await.unwrap();
    assert!(lease.is_valid());
    let before = lease.deadline();
    for error in [
        blob.lease(LEASE).await.map(drop).unwrap_err(),
        blob.overwrite("x").await.map(drop).unwrap_err(),
        blob.fenced(super::fence(1)).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Conflict { conflict: Conflict::Leased, .. }), "{error}");
    }
    lease.write("1").await.unwrap();
    lease.write("2").await.unwrap();
    lease.renew().await.unwrap();
    assert!(lease.deadline() > before);
    assert_eq!(&lease.read().await.unwrap().bytes[..], b"2");
    assert!(!format!("{lease:?}").contains('-'), "the id is a secret: {lease:?}");
    lease.release().await.unwrap();
    blob.overwrite("3").await.unwrap();
}

#[tokio::test]
async fn a_lease_that_was_broken_is_lost_for_ever() {
    let blob = blob("broken").await;
    blob.create("0").await.unwrap();
    let lease = blob.lease(LEASE).await.unwrap();
    past("broken").break_lease(Some(0)).await.ok();
    let next = blob.lease(LEASE).await.unwrap();
    let error = lease.write("late").await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(!lease.is_valid());
    for error in [lease.renew().await.unwrap_err(), lease.read().await.map(drop).unwrap_err()] {
        assert!(matches!(error, Error::Lost { .. }), "{error}");
    }
    next.write("next").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("next"));
    let error = blob.lease(Duration::from_secs(14)).await.unwrap_err();
    assert!(error.to_string().contains("15 to 60 whole seconds"), "{error}");
}

#[tokio::test]
async fn each_call_is_seen_to_its_end_whatever_happens_to_it() {
    let proxy = proxy();
    let blob = blob_behind(&proxy, "leasefaults", Duration::from_secs(1)).await;
    blob.create("").await.unwrap();
    let mut expected = String::new();
    for (n, fault) in [
        Fault::DropAnswer,
        Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
        Fault::Reset,
        Fault::Swallow,
    ]
    .into_iter()
    .enumerate()
    {
        for kind in [Kind::Acquire, Kind::Create, Kind::Release] {
            proxy.when(kind).times(1).then(fault);
        }
        let lease = blob.lease(LEASE).await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        expected += &n.to_string();
        lease.write(expected.clone()).await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        lease.release().await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        assert_eq!(text(&blob).await, Some(expected.clone()), "{fault:?}");
        assert_eq!(past("leasefaults").head().await.lease_state(), "available", "{fault:?}");
    }
}

/// A write was given up, its call comes late, and the lease is still held.
#[tokio::test]
async fn a_late_write_of_its_own_is_no_loss() {
    let proxy = proxy();
    let blob = blob_behind(&proxy, "leaselate", Duration::from_secs(1)).await;
    blob.create("0").await.unwrap();
    let lease = blob.lease(LEASE).await.unwrap();
    proxy.when(Kind::Create).times(1).then(Fault::HoldAnswer);
    tokio::select! {
        done = lease.write("1") => panic!("{done:?}"),
        _ = proxy.wait_for(|s| s.fault == Some(Fault::HoldAnswer) && s.upstream.is_some()) => {}
    }
    assert_eq!(&lease.read().await.unwrap().bytes[..], b"1");
    lease.write("2").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("2"));
}

#[tokio::test]
async fn work_ends_with_the_lease() {
    let proxy = proxy();
    let blob = blob_behind(&proxy, "keep", Duration::from_secs(1)).await;
    blob.create("0").await.unwrap();
    let lease = blob.lease(LEASE).await.unwrap();
    assert_eq!(lease.keep(async { 7 }).await.unwrap(), 7);
    past("keep").break_lease(Some(0)).await.ok();
    // The next renewal tells.
    let error = tokio::select! {
        ended = lease.keep(std::future::pending::<()>()) => ended.unwrap_err(),
        () = leasehold_runtime::sleep(Duration::from_secs(60)) => panic!("it goes on"),
    };
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

//! A blob held by its own lease, without a daemon.

use leasehold_fence::blob::{Conflict, Error};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};
use std::time::Duration;

use super::{blob, blob_via_proxy, direct, proxy, text};

const LEASE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn leased_blob_refuses_other_writers() {
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
        blob.fenced(super::lock_token(1)).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Conflict { conflict: Conflict::Leased, .. }), "{error}");
    }
    lease.write("1").await.unwrap();
    lease.write("2").await.unwrap();
    lease.renew().await.unwrap();
    assert!(lease.deadline() > before);
    assert_eq!(&lease.read().await.unwrap().bytes[..], b"2");
    assert!(!format!("{lease:?}").contains('-'), "the lease ID is a secret: {lease:?}");
    lease.release().await.unwrap();
    blob.overwrite("3").await.unwrap();
}

#[tokio::test]
async fn broken_lease_stays_lost() {
    let blob = blob("broken").await;
    blob.create("0").await.unwrap();
    let lease = blob.lease(LEASE).await.unwrap();
    direct("broken").break_lease(Some(0)).await.ok();
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
async fn lease_calls_complete_despite_faults() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "leasefaults", Duration::from_secs(1)).await;
    blob.create("").await.unwrap();
    let mut expected = String::new();
    for (n, fault) in [
        Fault::DropResponse,
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
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
        assert_eq!(direct("leasefaults").head().await.lease_state(), "available", "{fault:?}");
    }
}

/// A write is abandoned and arrives late, while the lease is still held.
#[tokio::test]
async fn own_late_write_does_not_lose_lease() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "leaselate", Duration::from_secs(1)).await;
    blob.create("0").await.unwrap();
    let lease = blob.lease(LEASE).await.unwrap();
    proxy.when(Kind::Create).times(1).then(Fault::HoldResponse);
    tokio::select! {
        done = lease.write("1") => panic!("{done:?}"),
        _ = proxy.wait_for(|call| call.fault.is_some() && call.upstream_status.is_some()) => {}
    }
    assert_eq!(&lease.read().await.unwrap().bytes[..], b"1");
    lease.write("2").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("2"));
}

#[tokio::test]
async fn work_is_stopped_when_lease_is_lost() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "keep", Duration::from_secs(1)).await;
    blob.create("0").await.unwrap();
    let lease = blob.lease(LEASE).await.unwrap();
    assert_eq!(lease.keep(async { 7 }).await.unwrap(), 7);
    direct("keep").break_lease(Some(0)).await.ok();
    // The next renewal detects the loss.
    let error = tokio::select! {
        ended = lease.keep(std::future::pending::<()>()) => ended.unwrap_err(),
        () = leasehold_runtime::sleep(Duration::from_secs(60)) => panic!("the work continues"),
    };
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

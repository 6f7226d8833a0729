//! Duplicates of calls that arrive late. None of them affects a later hold
//! (safety rules 1 and 2).

use leasehold_store::{Release, Renew};
use leasehold_test_support::proxy::{Fault, Kind, RecordedCall};

use super::lock;
use crate::fixture::Fixture;

/// Releases a held duplicate and returns the storage's status for it.
async fn send_duplicate(fixture: &Fixture, kind: Kind) -> Option<u16> {
    fixture.proxy.release_held();
    let duplicate = |call: &RecordedCall| call.kind == kind && call.duplicate_status.is_some();
    fixture.proxy.wait_for(duplicate).await.duplicate_status
}

#[tokio::test]
async fn late_release_does_not_free_next_hold() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    lock.acquire(1).await;
    fixture.proxy.when(Kind::Release).times(1).then(Fault::HoldDuplicate);
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    lock.acquire(2).await;
    assert_eq!(send_duplicate(&fixture, Kind::Release).await, Some(409));
    assert!(lock.is_held(3).await);
    assert!(matches!(lock.renew(2).await, Renew::Renewed { .. }));
}

#[tokio::test]
async fn late_acquire_does_not_take_next_holds_lease() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    lock.use_once().await;
    fixture.proxy.when(Kind::Acquire).times(1).then(Fault::HoldDuplicate);
    lock.acquire(1).await;
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    let hold = lock.acquire(2).await;
    assert_eq!(send_duplicate(&fixture, Kind::Acquire).await, Some(409));
    assert!(matches!(lock.renew(2).await, Renew::Renewed { .. }));
    assert!(matches!(lock.renew(1).await, Renew::Lost { .. }));
    assert_eq!(fixture.token("a").await, hold.token.get());
}

#[tokio::test]
async fn late_renewal_does_not_extend_next_hold() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    lock.acquire(1).await;
    fixture.proxy.when(Kind::Renew).times(1).then(Fault::HoldDuplicate);
    assert!(matches!(lock.renew(1).await, Renew::Renewed { .. }));
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    lock.acquire(2).await;
    assert_eq!(send_duplicate(&fixture, Kind::Renew).await, Some(409));
    assert_eq!(lock.store.release(&lock.lock, super::id(2)).await, Ok(Release::Released));
    assert_eq!(fixture.lease_state("a").await, "available");
}

#[tokio::test]
async fn late_write_does_not_change_record() {
    let fixture = Fixture::new().await;
    for (name, next_hold) in [("same", false), ("next", true)] {
        let lock = lock(fixture.store(), name);
        lock.use_once().await;
        fixture.proxy.clear();
        fixture.proxy.when(Kind::Write.of(name)).times(1).then(Fault::HoldDuplicate);
        let mut hold = lock.acquire(1).await;
        if next_hold {
            lock.store.release(&lock.lock, super::id(1)).await.unwrap();
            hold = lock.acquire(2).await;
        }
        let record = fixture.record(name).await;
        assert_eq!(send_duplicate(&fixture, Kind::Write).await, Some(412), "{name}");
        assert_eq!(fixture.record(name).await, record, "{name}");
        assert_eq!(fixture.token(name).await, hold.token.get(), "{name}");
    }
}

/// The creation requires that no blob exists.
#[tokio::test]
async fn late_creation_does_not_clear_record() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    fixture.proxy.when(Kind::Create).times(1).then(Fault::HoldDuplicate);
    lock.acquire(1).await;
    let record = fixture.record("a").await;
    let status = send_duplicate(&fixture, Kind::Create).await;
    assert!(matches!(status, Some(409 | 412)), "{status:?}");
    assert_eq!(fixture.record("a").await, record);
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    assert!(lock.acquire(2).await.token.get() > record["token"].parse().unwrap());
}

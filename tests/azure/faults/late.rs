//! Calls that the network delivers once more, long after they were answered.
//! None of them touches a later hold (safety rules 1 and 2).

use leasehold_store::{Release, Renew};
use leasehold_test_support::proxy::{Fault, Kind, Seen};

use super::lock;
use crate::scene::Scene;

/// Lets the duplicates come, and waits until the storage has answered them.
async fn arrives(scene: &Scene, kind: Kind) -> Option<u16> {
    scene.proxy.let_go();
    let duplicate = |seen: &Seen| seen.kind == kind && seen.repeated.is_some();
    scene.proxy.wait_for(duplicate).await.repeated
}

#[tokio::test]
async fn a_release_does_not_free_the_next_hold() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    lock.acquire(1).await;
    scene.proxy.when(Kind::Release).times(1).then(Fault::HoldDuplicate);
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    lock.acquire(2).await;
    assert_eq!(arrives(&scene, Kind::Release).await, Some(409));
    assert!(lock.is_held(3).await);
    assert!(matches!(lock.renew(2).await, Renew::Renewed { .. }));
}

#[tokio::test]
async fn an_acquire_does_not_take_the_lease_from_the_next_hold() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    lock.used_before().await;
    scene.proxy.when(Kind::Acquire).times(1).then(Fault::HoldDuplicate);
    lock.acquire(1).await;
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    let hold = lock.acquire(2).await;
    assert_eq!(arrives(&scene, Kind::Acquire).await, Some(409));
    assert!(matches!(lock.renew(2).await, Renew::Renewed { .. }));
    assert!(matches!(lock.renew(1).await, Renew::Lost { .. }));
    assert_eq!(scene.token("a").await, hold.token.get());
}

#[tokio::test]
async fn a_renewal_does_not_prolong_the_next_hold() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    lock.acquire(1).await;
    scene.proxy.when(Kind::Renew).times(1).then(Fault::HoldDuplicate);
    assert!(matches!(lock.renew(1).await, Renew::Renewed { .. }));
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    lock.acquire(2).await;
    assert_eq!(arrives(&scene, Kind::Renew).await, Some(409));
    assert_eq!(lock.store.release(&lock.lock, super::id(2)).await, Ok(Release::Released));
    assert_eq!(scene.lease_state("a").await, "available");
}

#[tokio::test]
async fn a_write_does_not_change_the_record() {
    let scene = Scene::new().await;
    for (name, next_hold) in [("same", false), ("next", true)] {
        let lock = lock(scene.store(), name);
        lock.used_before().await;
        scene.proxy.clear();
        scene.proxy.when(Kind::Write.of(name)).times(1).then(Fault::HoldDuplicate);
        let mut hold = lock.acquire(1).await;
        if next_hold {
            lock.store.release(&lock.lock, super::id(1)).await.unwrap();
            hold = lock.acquire(2).await;
        }
        let record = scene.record(name).await;
        assert_eq!(arrives(&scene, Kind::Write).await, Some(412), "{name}");
        assert_eq!(scene.record(name).await, record, "{name}");
        assert_eq!(scene.token(name).await, hold.token.get(), "{name}");
    }
}

/// A blob is created only where there is none.
#[tokio::test]
async fn a_creation_does_not_empty_the_record() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    scene.proxy.when(Kind::Create).times(1).then(Fault::HoldDuplicate);
    lock.acquire(1).await;
    let record = scene.record("a").await;
    let status = arrives(&scene, Kind::Create).await;
    assert!(matches!(status, Some(409 | 412)), "{status:?}");
    assert_eq!(scene.record("a").await, record);
    lock.store.release(&lock.lock, super::id(1)).await.unwrap();
    assert!(lock.acquire(2).await.token.get() > record["token"].parse().unwrap());
}

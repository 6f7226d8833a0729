//! A release and a break are repeated until they are known to be done.

use std::time::Duration;

use leasehold_store::{Break, Breaker, Release, Renew};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};

use super::{id, lock};
use crate::scene::Scene;

const UNCLEAR: [Fault; 6] = [
    Fault::DropAnswer,
    Fault::Reset,
    Fault::Answer(Refusal::INTERNAL_ERROR),
    Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
    Fault::Answer(Refusal::busy(Duration::from_secs(1))),
    Fault::Answer(Refusal::FORBIDDEN),
];

#[tokio::test]
async fn a_release_without_a_clear_answer_is_unknown_and_can_be_repeated() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    for (number, fault) in (1..).zip(UNCLEAR) {
        lock.acquire(number).await;
        scene.proxy.when(Kind::Release).times(1).then(fault);
        let released = lock.store.release(&lock.lock, id(number)).await;
        assert!(matches!(released, Ok(Release::Unknown { .. })), "{fault:?}: {released:?}");
        let released = lock.store.release(&lock.lock, id(number)).await;
        assert_eq!(released, Ok(Release::Released), "{fault:?}");
        assert_eq!(scene.lease_state("a").await, "available", "{fault:?}");
    }
}

#[tokio::test]
async fn a_break_whose_answer_is_lost_is_repeated() {
    let scene = Scene::new().await;
    for (number, fault) in UNCLEAR.into_iter().take(5).enumerate() {
        let name = format!("broken-{number}");
        let lock = lock(scene.store(), &name);
        lock.acquire(1).await;
        scene.proxy.when(Kind::Break.of(&name)).times(1).then(fault);
        let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
        let broken = lock.store.break_lease(&lock.lock, breaker).await;
        assert!(matches!(broken, Ok(Break::Broken { .. })), "{fault:?}: {broken:?}");
        assert_eq!(scene.proxy.count(Kind::Break.of(&name)), 2, "{fault:?}");
        assert!(matches!(lock.renew(1).await, Renew::Lost { .. }), "{fault:?}");
    }
}

#[tokio::test]
async fn break_note_is_read_by_the_broken_hold_only() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "noted");
    let breaker = || Breaker { by: "ops".into(), reason: "stuck".into() };
    lock.acquire(1).await;
    // The breaking daemon is another one.
    let peer = scene.store();
    assert!(matches!(peer.break_lease(&lock.lock, breaker()).await, Ok(Break::Broken { .. })));
    let Renew::Lost { broken, .. } = lock.renew(1).await else { panic!("not lost") };
    assert_eq!(broken, Some(breaker()));
    // The next hold is broken in the storage itself: the note, which is still
    // there, is not about it.
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    lock.acquire(2).await;
    scene.blob("noted").break_lease(Some(0)).send().await.unwrap().ok();
    assert_eq!(scene.blob("noted/~break").head().send().await.unwrap().status, 200);
    let Renew::Lost { broken, .. } = lock.renew(2).await else { panic!("not lost") };
    assert_eq!(broken, None);
}

#[tokio::test]
async fn break_goes_ahead_without_its_note() {
    let scene = Scene::new().await;
    for (number, fault) in UNCLEAR.into_iter().enumerate() {
        let name = format!("unnoted-{number}");
        let lock = lock(scene.store(), &name);
        lock.acquire(1).await;
        scene.proxy.when(Kind::Create.of(&format!("{name}/~break"))).then(fault);
        let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
        let broken = scene.store().break_lease(&lock.lock, breaker.clone()).await;
        assert!(matches!(broken, Ok(Break::Broken { .. })), "{fault:?}: {broken:?}");
        let Renew::Lost { broken, .. } = lock.renew(1).await else { panic!("not lost") };
        // With a lost answer the note may be there: then it is right.
        let applied = matches!(fault, Fault::DropAnswer | Fault::ApplyThenAnswer(_));
        assert_eq!(broken, applied.then_some(breaker), "{fault:?}");
    }
}

#[tokio::test]
async fn break_of_a_free_lock_leaves_no_note() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "free");
    lock.used_before().await;
    let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
    assert_eq!(lock.store.break_lease(&lock.lock, breaker).await, Ok(Break::NotHeld));
    assert_eq!(scene.blob("free/~break").head().send().await.unwrap().status, 404);
}

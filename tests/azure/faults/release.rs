//! Releases and breaks are retried until they are known to be applied.

use std::time::Duration;

use leasehold_store::{Break, Breaker, Release, Renew};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};

use super::{id, lock};
use crate::fixture::Fixture;

const UNKNOWN_OUTCOME: [Fault; 6] = [
    Fault::DropResponse,
    Fault::Reset,
    Fault::Refuse(Refusal::INTERNAL_ERROR),
    Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
    Fault::Refuse(Refusal::busy(Duration::from_secs(1))),
    Fault::Refuse(Refusal::FORBIDDEN),
];

#[tokio::test]
async fn release_without_definite_answer_is_repeatable() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    for (number, fault) in (1..).zip(UNKNOWN_OUTCOME) {
        lock.acquire(number).await;
        fixture.proxy.when(Kind::Release).times(1).then(fault);
        let released = lock.store.release(&lock.lock, id(number)).await;
        assert!(matches!(released, Ok(Release::Unknown { .. })), "{fault:?}: {released:?}");
        let released = lock.store.release(&lock.lock, id(number)).await;
        assert_eq!(released, Ok(Release::Released), "{fault:?}");
        assert_eq!(fixture.lease_state("a").await, "available", "{fault:?}");
    }
}

#[tokio::test]
async fn break_with_unknown_outcome_is_retried() {
    let fixture = Fixture::new().await;
    for (number, fault) in UNKNOWN_OUTCOME.into_iter().take(5).enumerate() {
        let name = format!("broken-{number}");
        let lock = lock(fixture.store(), &name);
        lock.acquire(1).await;
        fixture.proxy.when(Kind::Break.of(&name)).times(1).then(fault);
        let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
        let broken = lock.store.break_lease(&lock.lock, breaker).await;
        assert!(matches!(broken, Ok(Break::Broken { .. })), "{fault:?}: {broken:?}");
        assert_eq!(fixture.proxy.count(Kind::Break.of(&name)), 2, "{fault:?}");
        assert!(matches!(lock.renew(1).await, Renew::Lost { .. }), "{fault:?}");
    }
}

#[tokio::test]
async fn break_note_is_read_by_broken_hold_only() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "noted");
    let breaker = || Breaker { by: "ops".into(), reason: "stuck".into() };
    lock.acquire(1).await;
    // A peer breaks the lease.
    let peer = fixture.store();
    assert!(matches!(peer.break_lease(&lock.lock, breaker()).await, Ok(Break::Broken { .. })));
    let Renew::Lost { broken, .. } = lock.renew(1).await else { panic!("not lost") };
    assert_eq!(broken, Some(breaker()));
    // The next hold is broken in the storage itself. The note still exists, but
    // belongs to the earlier hold.
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    lock.acquire(2).await;
    fixture.blob("noted").break_lease(Some(0)).send().await.unwrap().ok();
    assert_eq!(fixture.blob("noted/~break").head().send().await.unwrap().status, 200);
    let Renew::Lost { broken, .. } = lock.renew(2).await else { panic!("not lost") };
    assert_eq!(broken, None);
}

#[tokio::test]
async fn break_succeeds_without_note() {
    let fixture = Fixture::new().await;
    for (number, fault) in UNKNOWN_OUTCOME.into_iter().enumerate() {
        let name = format!("unnoted-{number}");
        let lock = lock(fixture.store(), &name);
        lock.acquire(1).await;
        fixture.proxy.when(Kind::Create.of(&format!("{name}/~break"))).then(fault);
        let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
        let broken = fixture.store().break_lease(&lock.lock, breaker.clone()).await;
        assert!(matches!(broken, Ok(Break::Broken { .. })), "{fault:?}: {broken:?}");
        let Renew::Lost { broken, .. } = lock.renew(1).await else { panic!("not lost") };
        // If only the response was lost, the note was written.
        let applied = matches!(fault, Fault::DropResponse | Fault::ApplyThenRefuse(_));
        assert_eq!(broken, applied.then_some(breaker), "{fault:?}");
    }
}

#[tokio::test]
async fn break_of_free_lock_leaves_no_note() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "free");
    lock.use_once().await;
    let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
    assert_eq!(lock.store.break_lease(&lock.lock, breaker).await, Ok(Break::NotHeld));
    assert_eq!(fixture.blob("free/~break").head().send().await.unwrap().status, 404);
}

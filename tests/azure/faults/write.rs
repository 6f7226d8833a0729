//! The record of a hold: read back where it is not clear whether it was
//! written, and nothing is granted that is not durable.

use leasehold_store::{Acquire, Release};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};

use super::{id, lock};
use crate::scene::{COUNTED_ON, Scene};

const CHANGED: Refusal = Refusal::new(412, "ConditionNotMet");

#[tokio::test]
async fn what_was_written_without_an_answer_is_read_back_and_granted() {
    let scene = Scene::new().await;
    for (number, fault) in [
        Fault::DropAnswer,
        Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
        Fault::ApplyThenAnswer(Refusal::new(503, "ServerBusy")),
        // So is answered what the network sent twice.
        Fault::ApplyThenAnswer(CHANGED),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("written-{number}");
        let lock = lock(scene.store(), &name);
        let before = lock.used_before().await;
        scene.proxy.clear();
        scene.proxy.when(Kind::Write.of(&name)).times(1).then(fault);
        let hold = lock.acquire(1).await;
        let calls = scene.calls(&name);
        assert_eq!(scene.kinds(&name), [Kind::Acquire, Kind::Write, Kind::Read], "{fault:?}");
        assert!(hold.deadline <= calls[0].came + COUNTED_ON, "{fault:?}");
        assert!(hold.token > before);
        assert_eq!(scene.token(&name).await, hold.token.get(), "{fault:?}");
    }
}

#[tokio::test]
async fn what_was_not_written_is_written_again() {
    let scene = Scene::new().await;
    for (number, fault) in [
        Fault::Reset,
        Fault::Answer(Refusal::INTERNAL_ERROR),
        Fault::Answer(Refusal::new(503, "ServerBusy")),
        Fault::Answer(CHANGED),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("unwritten-{number}");
        let lock = lock(scene.store(), &name);
        let before = lock.used_before().await;
        scene.proxy.clear();
        scene.proxy.when(Kind::Write.of(&name)).times(1).then(fault);
        let hold = lock.acquire(1).await;
        let kinds = scene.kinds(&name);
        assert_eq!(kinds, [Kind::Acquire, Kind::Write, Kind::Read, Kind::Write], "{fault:?}");
        for call in scene.calls(&name).iter().filter(|call| call.kind == Kind::Write) {
            assert!(call.with_lease_id && call.if_match, "safety rule 2: {call:?}");
        }
        assert!(hold.token > before);
        assert_eq!(scene.token(&name).await, hold.token.get(), "{fault:?}");
    }
}

pub(crate) async fn what_stays_unclear_is_not_granted_and_its_tokens_are_never_used() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    let before = lock.used_before().await;
    let lost = scene.proxy.when(Kind::Write).then(Fault::DropAnswer);
    let unread = scene.proxy.when(Kind::Read).then(Fault::Reset);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    scene.proxy.remove(lost);
    scene.proxy.remove(unread);
    let written = scene.token("a").await;
    assert!(written > before.get(), "it was written all the same");
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    assert!(lock.acquire(2).await.token.get() > written);
}

/// An operator breaks the lease between its acquisition and the write.
#[tokio::test]
async fn nothing_is_written_under_a_lease_that_was_broken_meanwhile() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    let before = lock.used_before().await;
    scene.proxy.when(Kind::Write).times(1).then(Fault::Hold);
    let acquire = tokio::spawn(lock.store.acquire(lock.claim(1)).into_future());
    scene.proxy.wait_for(|seen| seen.kind == Kind::Write && seen.fault.is_some()).await;
    scene.blob("a").break_lease(Some(0)).await.ok();
    scene.proxy.let_go();
    let answer = acquire.await.unwrap();
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(scene.token("a").await, before.get());
    lock.store.release(&lock.lock, id(1)).await.unwrap();
    assert!(lock.acquire(2).await.token > before);
}

/// The same, and another daemon has the lease by then.
#[tokio::test]
async fn nothing_is_written_over_the_record_of_another() {
    let scene = Scene::new().await;
    let (slow, other) = (lock(scene.store(), "a"), lock(scene.store_past(), "a"));
    slow.used_before().await;
    scene.proxy.when(Kind::Write).times(1).then(Fault::Hold);
    let acquire = tokio::spawn(slow.store.acquire(slow.claim(1)).into_future());
    scene.proxy.wait_for(|seen| seen.kind == Kind::Write && seen.fault.is_some()).await;
    scene.blob("a").break_lease(Some(0)).await.ok();
    let hold = other.acquire(2).await;
    let record = scene.record("a").await;
    scene.proxy.let_go();
    let answer = acquire.await.unwrap();
    assert!(!matches!(answer, Ok(Acquire::Acquired(_))), "{answer:?}");
    assert_eq!(slow.store.release(&slow.lock, id(1)).await, Ok(Release::Released));
    assert_eq!(scene.record("a").await, record);
    assert_eq!(scene.token("a").await, hold.token.get());
    assert!(slow.is_held(3).await, "the other holds it");
}

/// The service's clock begins a new lock's tokens, but not if it is absurdly
/// ahead (safety rule 2).
#[tokio::test]
async fn a_clock_that_is_absurdly_ahead_is_not_believed() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "old");
    let before = lock.used_before().await;
    let absurd = Fault::Header { name: "date", value: "Fri, 01 Jan 2100 00:00:00 GMT" };
    let kinds = [Kind::Acquire, Kind::Read, Kind::Write, Kind::Create];
    let rules = kinds.map(|kind| scene.proxy.when(kind).then(absurd));
    let hold = lock.acquire(1).await;
    assert!(hold.token > before);
    assert!(hold.token.get() >> 20 < 4_102_444_800, "it begins in the year 2100");

    let new = super::lock(scene.store(), "new");
    let answer = new.try_acquire(2).await;
    let Ok(Acquire::Unknown { why }) = answer else { panic!("{answer:?}") };
    assert!(why.contains("clock"), "{why}");
    new.store.release(&new.lock, id(2)).await.unwrap();
    for rule in rules {
        scene.proxy.remove(rule);
    }
    new.acquire(3).await;
}

#[tokio::test]
async fn more_tokens_for_a_hold_are_as_durable_as_the_first() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    let mut highest = lock.acquire(1).await.token.get();
    for fault in [
        Fault::DropAnswer,
        Fault::Reset,
        Fault::ApplyThenAnswer(CHANGED),
        Fault::Answer(Refusal::INTERNAL_ERROR),
    ] {
        scene.proxy.when(Kind::Write).times(1).then(fault);
        let more = lock.store.next_tokens(&lock.lock, id(1)).await.unwrap();
        let Acquire::Acquired(mut more) = more else { panic!("{fault:?}: {more:?}") };
        let token = more.tokens.take().unwrap().get();
        assert!(token > highest, "{fault:?}");
        assert_eq!(scene.token("a").await, token, "{fault:?}");
        highest = token;
    }
}

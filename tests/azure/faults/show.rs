//! What others see of a leader: never without its value, never after its end.

use std::{sync::Arc, time::Duration};

use leasehold_store::{Acquire, AcquireParams, Breaker, Publication, Publish};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};

use super::{Locks, id, lock};
use crate::scene::Scene;

impl Locks {
    /// Leads with a value.
    async fn lead(&self, value: &str) -> Publication {
        let claim = AcquireParams { value: Some(value.as_bytes().into()), ..self.claim(1) };
        let holder = Arc::clone(&claim.holder);
        let Ok(Acquire::Acquired(mut acquired)) = self.store.acquire(claim).await else { panic!() };
        let token = acquired.tokens.take().unwrap();
        Publication { holder, token, held_for: Duration::ZERO, value: None }
    }

    /// Looks again, as those do who wait: whether a leader is shown, and its value.
    async fn sees(&self) -> Option<Option<Vec<u8>>> {
        let claim = AcquireParams { again: true, ..self.claim(2) };
        let Ok(Acquire::Held { by }) = self.store.acquire(claim).await else { panic!() };
        let leader = by.filter(|info| info.leader.is_some())?;
        Some(leader.value.as_ref().map(|value| value.to_vec()))
    }
}

#[tokio::test]
async fn a_value_that_changes_while_it_is_read_is_read_again() {
    let scene = Scene::new().await;
    let leader = lock(scene.store_past(), "a");
    let lead = leader.lead("first").await;
    let waiter = lock(scene.store(), "a");
    // The properties pass, the value is held back.
    let rule = scene.proxy.when(Kind::Read).nth(2).then(Fault::Hold);
    let change = async {
        scene.proxy.wait_for_many(2, |seen| seen.kind == Kind::Read).await;
        let second = Publication { value: Some(b"second"[..].into()), ..lead };
        let shown = leader.store.publish(&leader.lock, id(1), second).await;
        assert_eq!(shown, Ok(Publish::Published));
        scene.proxy.remove(rule);
        scene.proxy.let_go();
    };
    let (seen, ()) = tokio::join!(waiter.sees(), change);
    assert_eq!(seen, Some(Some(b"second".to_vec())));
}

#[tokio::test]
async fn a_leader_is_not_shown_without_its_value() {
    let scene = Scene::new().await;
    lock(scene.store_past(), "a").lead("value").await;
    let waiter = lock(scene.store(), "a");
    let busy = Fault::Answer(Refusal::INTERNAL_ERROR);
    let rule = scene.proxy.when(Kind::Read).nth(2).then(busy);
    assert_eq!(waiter.sees().await, None);
    scene.proxy.remove(rule);
    assert_eq!(waiter.sees().await, Some(Some(b"value".to_vec())));
}

/// The note makes a new version: whoever leases the blob at that version, and has
/// not written its own record yet, is not taken for the one before.
#[tokio::test]
async fn a_break_that_is_noted_afterwards_brings_nobody_back() {
    let scene = Scene::new().await;
    let leader = lock(scene.store(), "a");
    leader.lead("value").await;
    leader.store.release(&leader.lock, id(1)).await.unwrap();
    let waiter = lock(scene.store(), "a");
    assert_eq!(waiter.store.inspect(&waiter.lock).await.unwrap().unwrap().leader, None);
    let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
    leader.store.note_break(&leader.lock, breaker).await.unwrap();
    scene.blob("a").acquire("0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10", 15).await.ok();
    assert_eq!(waiter.sees().await, None);
    assert_eq!(scene.record("a").await["brokenby"], "ops");
}

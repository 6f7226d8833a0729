//! Visibility of a leader to peers: never without its value, never after its end.

use std::{sync::Arc, time::Duration};

use leasehold_store::{Acquire, AcquireParams, Breaker, Publication, Publish};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};

use super::{StoreLock, id, lock};
use crate::fixture::Fixture;

impl StoreLock {
    /// Becomes leader with a value.
    async fn lead(&self, value: &str) -> Publication {
        let params = AcquireParams { value: Some(value.as_bytes().into()), ..self.params(1) };
        let holder = Arc::clone(&params.holder);
        let Ok(Acquire::Acquired(mut acquired)) = self.store.acquire(params).await else {
            panic!()
        };
        let token = acquired.tokens.take().unwrap();
        Publication { holder, token, held_for: Duration::ZERO, value: None }
    }

    /// Polls the lock as a waiter does. Returns the leader's value; None if no
    /// leader is reported.
    async fn poll_leader(&self) -> Option<Option<Vec<u8>>> {
        let params = AcquireParams { is_retry: true, ..self.params(2) };
        let Ok(Acquire::Held { by }) = self.store.acquire(params).await else { panic!() };
        let leader = by.filter(|info| info.leader.is_some())?;
        Some(leader.value.as_ref().map(|value| value.to_vec()))
    }
}

#[tokio::test]
async fn value_changed_during_read_is_read_again() {
    let fixture = Fixture::new().await;
    let leader = lock(fixture.store_direct(), "a");
    let lead = leader.lead("first").await;
    let waiter = lock(fixture.store(), "a");
    // Hold the read of the value, after that of the properties.
    let rule = fixture.proxy.when(Kind::Read).nth(2).then(Fault::Hold);
    let change = async {
        fixture.proxy.wait_for_many(2, |call| call.kind == Kind::Read).await;
        let second = Publication { value: Some(b"second"[..].into()), ..lead };
        let published = leader.store.publish(&leader.lock, id(1), second).await;
        assert_eq!(published, Ok(Publish::Published));
        fixture.proxy.remove(rule);
        fixture.proxy.release_held();
    };
    let (leader, ()) = tokio::join!(waiter.poll_leader(), change);
    assert_eq!(leader, Some(Some(b"second".to_vec())));
}

#[tokio::test]
async fn leader_is_not_reported_without_value() {
    let fixture = Fixture::new().await;
    lock(fixture.store_direct(), "a").lead("value").await;
    let waiter = lock(fixture.store(), "a");
    let busy = Fault::Refuse(Refusal::INTERNAL_ERROR);
    let rule = fixture.proxy.when(Kind::Read).nth(2).then(busy);
    assert_eq!(waiter.poll_leader().await, None);
    fixture.proxy.remove(rule);
    assert_eq!(waiter.poll_leader().await, Some(Some(b"value".to_vec())));
}

/// Recording a break creates a new version of the blob. A daemon that leases this
/// version and has not yet written its record is not mistaken for the former
/// leader.
#[tokio::test]
async fn break_recorded_late_does_not_restore_leader() {
    let fixture = Fixture::new().await;
    let leader = lock(fixture.store(), "a");
    leader.lead("value").await;
    leader.store.release(&leader.lock, id(1)).await.unwrap();
    let waiter = lock(fixture.store(), "a");
    assert_eq!(waiter.store.inspect(&waiter.lock).await.unwrap().unwrap().leader, None);
    let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
    leader.store.record_break(&leader.lock, breaker).await.unwrap();
    fixture.blob("a").acquire("0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10", 15).await.ok();
    assert_eq!(waiter.poll_leader().await, None);
    assert_eq!(fixture.record("a").await["brokenby"], "ops");
}

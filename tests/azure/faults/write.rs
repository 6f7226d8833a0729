//! Faults during the write of a hold's record: a write of unknown outcome is
//! read back, and only durable tokens are granted.

use leasehold_store::{Acquire, Release};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};

use super::{id, lock};
use crate::fixture::{Fixture, VALIDITY};

const CHANGED: Refusal = Refusal::new(412, "ConditionNotMet");

#[tokio::test]
async fn write_without_response_is_read_back_and_granted() {
    let fixture = Fixture::new().await;
    for (number, fault) in [
        Fault::DropResponse,
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
        Fault::ApplyThenRefuse(Refusal::new(503, "ServerBusy")),
        // Response to a write that the network duplicated.
        Fault::ApplyThenRefuse(CHANGED),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("written-{number}");
        let lock = lock(fixture.store(), &name);
        let before = lock.use_once().await;
        fixture.proxy.clear();
        fixture.proxy.when(Kind::Write.of(&name)).times(1).then(fault);
        let hold = lock.acquire(1).await;
        let calls = fixture.calls(&name);
        assert_eq!(fixture.kinds(&name), [Kind::Acquire, Kind::Write, Kind::Read], "{fault:?}");
        assert!(hold.deadline <= calls[0].received_at + VALIDITY, "{fault:?}");
        assert!(hold.token > before);
        assert_eq!(fixture.token(&name).await, hold.token.get(), "{fault:?}");
    }
}

#[tokio::test]
async fn unapplied_write_is_retried() {
    let fixture = Fixture::new().await;
    for (number, fault) in [
        Fault::Reset,
        Fault::Refuse(Refusal::INTERNAL_ERROR),
        Fault::Refuse(Refusal::new(503, "ServerBusy")),
        Fault::Refuse(CHANGED),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("unwritten-{number}");
        let lock = lock(fixture.store(), &name);
        let before = lock.use_once().await;
        fixture.proxy.clear();
        fixture.proxy.when(Kind::Write.of(&name)).times(1).then(fault);
        let hold = lock.acquire(1).await;
        let kinds = fixture.kinds(&name);
        assert_eq!(kinds, [Kind::Acquire, Kind::Write, Kind::Read, Kind::Write], "{fault:?}");
        for call in fixture.calls(&name).iter().filter(|call| call.kind == Kind::Write) {
            assert!(call.with_lease_id && call.if_match, "safety rule 2: {call:?}");
        }
        assert!(hold.token > before);
        assert_eq!(fixture.token(&name).await, hold.token.get(), "{fault:?}");
    }
}

pub(crate) async fn unknown_write_is_not_granted_and_its_tokens_unused() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    let before = lock.use_once().await;
    let lost = fixture.proxy.when(Kind::Write).then(Fault::DropResponse);
    let unread = fixture.proxy.when(Kind::Read).then(Fault::Reset);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    fixture.proxy.remove(lost);
    fixture.proxy.remove(unread);
    let written = fixture.token("a").await;
    assert!(written > before.get(), "the write was applied");
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    assert!(lock.acquire(2).await.token.get() > written);
}

/// An operator breaks the lease between the acquisition and the write.
#[tokio::test]
async fn no_write_under_broken_lease() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    let before = lock.use_once().await;
    fixture.proxy.when(Kind::Write).times(1).then(Fault::Hold);
    let acquire = tokio::spawn(lock.store.acquire(lock.params(1)).into_future());
    fixture.proxy.wait_for(|call| call.kind == Kind::Write && call.fault.is_some()).await;
    fixture.blob("a").break_lease(Some(0)).await.ok();
    fixture.proxy.release_held();
    let answer = acquire.await.unwrap();
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(fixture.token("a").await, before.get());
    lock.store.release(&lock.lock, id(1)).await.unwrap();
    assert!(lock.acquire(2).await.token > before);
}

/// As before, and a peer holds the lease when the write arrives.
#[tokio::test]
async fn record_of_next_holder_is_not_overwritten() {
    let fixture = Fixture::new().await;
    let (slow, other) = (lock(fixture.store(), "a"), lock(fixture.store_direct(), "a"));
    slow.use_once().await;
    fixture.proxy.when(Kind::Write).times(1).then(Fault::Hold);
    let acquire = tokio::spawn(slow.store.acquire(slow.params(1)).into_future());
    fixture.proxy.wait_for(|call| call.kind == Kind::Write && call.fault.is_some()).await;
    fixture.blob("a").break_lease(Some(0)).await.ok();
    let hold = other.acquire(2).await;
    let record = fixture.record("a").await;
    fixture.proxy.release_held();
    let answer = acquire.await.unwrap();
    assert!(!matches!(answer, Ok(Acquire::Acquired(_))), "{answer:?}");
    assert_eq!(slow.store.release(&slow.lock, id(1)).await, Ok(Release::Released));
    assert_eq!(fixture.record("a").await, record);
    assert_eq!(fixture.token("a").await, hold.token.get());
    assert!(slow.is_held(3).await, "the peer holds the lease");
}

/// Tokens of a new lock start at the service's Date, but a Date far ahead is
/// ignored (safety rule 2).
#[tokio::test]
async fn storage_date_far_ahead_is_ignored() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "old");
    let before = lock.use_once().await;
    let far_ahead = Fault::Header { name: "date", value: "Fri, 01 Jan 2100 00:00:00 GMT" };
    let kinds = [Kind::Acquire, Kind::Read, Kind::Write, Kind::Create];
    let rules = kinds.map(|kind| fixture.proxy.when(kind).then(far_ahead));
    let hold = lock.acquire(1).await;
    assert!(hold.token > before);
    assert!(hold.token.get() >> 20 < 4_102_444_800, "the token is from the year 2100");

    let new = super::lock(fixture.store(), "new");
    let answer = new.try_acquire(2).await;
    let Ok(Acquire::Unknown { why }) = answer else { panic!("{answer:?}") };
    assert!(why.contains("clock"), "{why}");
    new.store.release(&new.lock, id(2)).await.unwrap();
    for rule in rules {
        fixture.proxy.remove(rule);
    }
    new.acquire(3).await;
}

#[tokio::test]
async fn additional_token_ranges_are_durable() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    let mut highest = lock.acquire(1).await.token.get();
    for fault in [
        Fault::DropResponse,
        Fault::Reset,
        Fault::ApplyThenRefuse(CHANGED),
        Fault::Refuse(Refusal::INTERNAL_ERROR),
    ] {
        fixture.proxy.when(Kind::Write).times(1).then(fault);
        let more = lock.store.next_tokens(&lock.lock, id(1)).await.unwrap();
        let Acquire::Acquired(mut more) = more else { panic!("{fault:?}: {more:?}") };
        let token = more.tokens.take().unwrap().get();
        assert!(token > highest, "{fault:?}");
        assert_eq!(fixture.token("a").await, token, "{fault:?}");
        highest = token;
    }
}

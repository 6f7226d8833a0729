//! Faults during the lease acquisition: it is retried with the same ID, and
//! released by that ID if the outcome stays unknown.

use leasehold_store::{Acquire, Error, Release};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};
use leasehold_time::Moment;

use super::{id, lock};
use crate::fixture::{DURATION, Fixture, VALIDITY, wait_for};

/// Faults that leave the outcome of an acquire unknown.
const UNKNOWN_OUTCOME: [Fault; 5] = [
    Fault::DropResponse,
    Fault::Reset,
    Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
    Fault::Refuse(Refusal::INTERNAL_ERROR),
    Fault::ApplyThenRefuse(Refusal::new(503, "ServerBusy")),
];

#[tokio::test]
async fn unknown_acquire_is_retried_with_deadline_from_first_send() {
    let fixture = Fixture::new().await;
    for (number, fault) in UNKNOWN_OUTCOME.into_iter().enumerate() {
        for warm in [false, true] {
            let name = format!("unknown-{number}-{warm}");
            let lock = lock(fixture.store(), &name);
            lock.use_once().await;
            fixture.proxy.clear();
            let rule = fixture.proxy.when(Kind::Acquire.of(&name)).times(1).then(fault);
            let store = if warm { lock.store.clone() } else { fixture.store() };
            let hold = super::lock(store, &name).acquire(1).await;
            fixture.proxy.remove(rule);

            let calls = fixture.calls(&name);
            let acquires: Vec<_> = calls.iter().filter(|call| call.kind == Kind::Acquire).collect();
            assert_eq!(acquires.len(), 2, "{fault:?}");
            assert!(hold.deadline <= acquires[0].received_at + VALIDITY, "{fault:?}");
            assert_eq!(fixture.token(&name).await, hold.token.get());
            assert_eq!(fixture.lease_state(&name).await, "leased");
            assert!(lock.is_held(2).await);
        }
    }
}

pub(crate) async fn acquire_of_unknown_outcome_is_freed_by_release() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    let before = lock.use_once().await;
    let rule = fixture.proxy.when(Kind::Acquire).then(Fault::DropResponse);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(fixture.lease_state("a").await, "leased", "the acquire was applied");
    assert_eq!(fixture.token("a").await, before.get(), "nothing was granted");
    fixture.proxy.remove(rule);
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    assert_eq!(fixture.lease_state("a").await, "available");
    assert!(lock.acquire(2).await.token > before);
}

/// The first attempt may have acquired the lease, regardless of the response to
/// the second.
#[tokio::test]
async fn refusal_after_unknown_outcome_stays_unknown() {
    let fixture = Fixture::new().await;
    let not_found = Refusal::new(404, "ContainerNotFound");
    for (number, refusal) in [Refusal::FORBIDDEN, not_found].into_iter().enumerate() {
        let name = format!("refused-{number}");
        let lock = lock(fixture.store(), &name);
        lock.use_once().await;
        let first = fixture.proxy.when(Kind::Acquire.of(&name)).times(1).then(Fault::DropResponse);
        let then = fixture.proxy.when(Kind::Acquire.of(&name)).then(Fault::Refuse(refusal));
        let answer = lock.try_acquire(1).await;
        assert_eq!(fixture.lease_state(&name).await, "leased", "the first attempt was applied");
        assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{refusal:?}: {answer:?}");
        fixture.proxy.remove(first);
        fixture.proxy.remove(then);
        lock.store.release(&lock.lock, id(1)).await.unwrap();
        lock.acquire(2).await;
    }
}

/// A lease that the first attempt acquired and an operator broke is released.
/// The store does not wait for its end.
#[tokio::test]
async fn lease_broken_before_confirmation_is_released() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    lock.use_once().await;
    fixture.proxy.clear();
    fixture.proxy.when(Kind::Acquire).times(1).then(Fault::DropResponse);
    let rule = fixture.proxy.when(Kind::Acquire).then(Fault::Hold);
    let broken = async {
        while fixture.lease_state("a").await != "leased" {
            leasehold_runtime::sleep(DURATION / 1000).await;
        }
        fixture.blob("a").break_lease(None).await.ok();
        fixture.proxy.wait_for_many(2, |call| call.kind == Kind::Acquire).await;
        fixture.proxy.remove(rule);
        fixture.proxy.release_held();
    };
    let (answer, ()) = tokio::join!(lock.try_acquire(1), broken);
    assert!(matches!(answer, Ok(Acquire::Held { .. })), "{answer:?}");
    assert_eq!(fixture.lease_state("a").await, "available");
    lock.acquire(2).await;
}

#[tokio::test]
async fn definite_refusal_is_not_retried_and_names_fix() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    lock.use_once().await;
    fixture.proxy.clear();
    let rule = fixture.proxy.when(Kind::Acquire).then(Fault::Refuse(Refusal::FORBIDDEN));
    let Err(Error::Unavailable { why, .. }) = lock.try_acquire(1).await else { panic!() };
    assert!(why.contains("firewall") && why.contains("403"), "{why}");
    assert_eq!(fixture.kinds("a"), [Kind::Acquire], "a definite answer is not retried");
    fixture.proxy.remove(rule);

    fixture.proxy.cut();
    // A new store has no connection on which the call could have been sent.
    let new = super::lock(fixture.store(), "a");
    let Err(Error::Unavailable { why, .. }) = new.try_acquire(2).await else { panic!() };
    assert!(why.contains("can't be reached"), "{why}");
    fixture.proxy.heal();
    assert_eq!(fixture.lease_state("a").await, "available");
    lock.acquire(3).await;
}

#[tokio::test]
async fn failing_blob_creation_is_retried_with_backoff() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    let rule =
        fixture.proxy.when(Kind::Create).then(Fault::Refuse(Refusal::new(503, "ServerBusy")));
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    let calls = fixture.kinds("a").len();
    assert!(calls < 40, "{calls} calls to a busy service");
    fixture.proxy.remove(rule);
    lock.acquire(2).await;
}

/// The store compares the lease ID in a response with its own (safety rule 9).
#[tokio::test]
async fn response_with_foreign_lease_id_grants_nothing() {
    const OTHER: &str = "0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10";
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    let before = lock.use_once().await;
    let other = Fault::Header { name: "x-ms-lease-id", value: OTHER };
    fixture.proxy.when(Kind::Acquire).times(1).then(other);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(fixture.token("a").await, before.get());
}

#[tokio::test]
async fn blob_creation_survives_lost_or_failed_response() {
    let fixture = Fixture::new().await;
    let exists = Refusal::new(409, "BlobAlreadyExists");
    // Azure's response if another client created and leased the blob.
    let leased = Refusal::new(412, "LeaseIdMissing");
    for (number, fault) in [
        Fault::DropResponse,
        Fault::Reset,
        Fault::Refuse(Refusal::INTERNAL_ERROR),
        Fault::ApplyThenRefuse(exists),
        Fault::ApplyThenRefuse(leased),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("new-{number}");
        fixture.proxy.when(Kind::Create.of(&name)).times(1).then(fault);
        let hold = lock(fixture.store(), &name).acquire(1).await;
        assert_eq!(fixture.token(&name).await, hold.token.get(), "{fault:?}");
    }
}

/// The late lease is never renewed, so it expires after its duration. The next
/// grant has a higher token.
pub(crate) async fn late_abandoned_acquire_blocks_one_lease_duration_only() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    let before = lock.use_once().await;
    let rule = fixture.proxy.when(Kind::Acquire).then(Fault::Hold);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    fixture.proxy.remove(rule);
    fixture.proxy.clear();
    let released_at = Moment::now();
    fixture.proxy.release_held();
    while fixture.lease_state("a").await != "leased" {
        leasehold_runtime::sleep(DURATION / 1000).await;
    }
    assert!(lock.is_held(2).await);
    let granted = wait_for("the end of the lease", async {
        for number in 3.. {
            if let Ok(Acquire::Acquired(mut acquired)) = lock.try_acquire(number).await {
                return acquired.tokens.take().unwrap();
            }
            leasehold_runtime::sleep(DURATION / 50).await;
        }
        unreachable!()
    })
    .await;
    assert!(Moment::now().since(released_at) >= DURATION - DURATION / 10);
    assert!(granted > before);
}

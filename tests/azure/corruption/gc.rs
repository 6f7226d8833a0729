//! Garbage collection: a daemon deletes the blobs of idle locks.

use std::{sync::Arc, time::Duration};

use azure_core::time::{OffsetDateTime, to_rfc7231};
use leasehold_store::{Acquire, AcquireParams, LeaseId};
use leasehold_test_support::proxy::{Fault, Kind, Match};
use leasehold_time::clock;
use leasehold_types::{Holder, LockName};

use super::record::{edited, rewrite};
use crate::fixture::{DURATION, Fixture, wait_for};

fn params(lock: &str, id: u128) -> AcquireParams {
    AcquireParams {
        name: LockName::parse("", lock).unwrap(),
        id: LeaseId::new(id << 64 | 1),
        duration: DURATION,
        holder: Arc::new(Holder::default()),
        value: None,
        is_retry: false,
    }
}

fn token(answer: Acquire) -> u64 {
    let Acquire::Acquired(mut acquired) = answer else { panic!("{answer:?}") };
    acquired.tokens.take().unwrap().get()
}

/// Creates a lock with an epoch five hours in the past.
async fn create_idle_lock(fixture: &Fixture, lock: &str) -> u64 {
    let (store, params) = (fixture.store_direct(), params(lock, 1));
    let token = token(store.acquire(params.clone()).await.unwrap());
    store.release(&params.name, params.id).await.unwrap();
    let old = token - ((5 * 3600) << 20);
    let record = edited(&fixture.record(lock).await, "token", Some(&old.to_string()));
    rewrite(&fixture.blob(lock), &record).await;
    old
}

#[tokio::test]
async fn idle_blobs_are_deleted_and_tokens_increase() {
    let fixture = Fixture::new().await;
    let before = create_idle_lock(&fixture, "idle").await;
    create_idle_lock(&fixture, "held").await;
    fixture.blob("held").acquire("0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10", 60).await.ok();
    let (store, new) = (fixture.store_direct(), params("new", 2));
    token(store.acquire(new.clone()).await.unwrap());
    store.release(&new.name, new.id).await.unwrap();
    // By the storage clock alone, all of them are old enough.
    let later = clock::unix_seconds() as i64 + 3 * 3600;
    let later = to_rfc7231(&OffsetDateTime::from_unix_timestamp(later).unwrap());
    let date = Fault::Header { name: "date", value: Box::leak(later.into_boxed_str()) };
    fixture.proxy.when(Kind::List).then(date);
    // A leftover break note of the same age.
    fixture.blob("idle/~break").put().await.ok();
    rewrite(&fixture.blob("idle/~break"), &fixture.record("idle").await).await;
    let collector = fixture.store_with_gc(Duration::from_secs(1));
    let deleted = async {
        for path in ["idle", "idle/~break"] {
            while fixture.blob(path).head().await.is().0 != 404 {
                leasehold_runtime::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    wait_for("the deletion of the idle blob", deleted).await;
    // Two more rounds.
    fixture.proxy.clear();
    fixture.proxy.wait_for_many(2, |seen| seen.kind == Kind::List && seen.is_done()).await;
    assert_eq!(fixture.lease_state("held").await, "leased");
    assert_eq!(fixture.lease_state("new").await, "available");
    let again = token(collector.acquire(params("idle", 3)).await.unwrap());
    assert!(again > before);
}

/// A storage date that is far ahead is ignored. The record of another process may
/// then be outdated, so its token is not continued.
#[tokio::test]
async fn foreign_record_is_not_continued_while_date_is_ahead() {
    let fixture = Fixture::new().await;
    let (writer, mut held) = (fixture.store(), params("orders", 1));
    let first = token(writer.acquire(held.clone()).await.unwrap());
    writer.release(&held.name, held.id).await.unwrap();
    let ahead = clock::unix_seconds() as i64 + 2 * 24 * 3600;
    let ahead = to_rfc7231(&OffsetDateTime::from_unix_timestamp(ahead).unwrap());
    let date = Fault::Header { name: "date", value: Box::leak(ahead.into_boxed_str()) };
    let rule = fixture.proxy.when(Match::any()).then(date);
    let (fresh, refused) = (fixture.store(), params("orders", 2));
    match fresh.acquire(refused.clone()).await.unwrap() {
        Acquire::Unknown { why } => assert!(why.contains("clock"), "{why}"),
        other => panic!("{other:?}"),
    }
    fresh.release(&refused.name, refused.id).await.unwrap();
    // The process that wrote the record knows that it is current.
    held.id = LeaseId::new(3 << 64 | 1);
    assert_eq!(token(writer.acquire(held.clone()).await.unwrap()), first + 1024);
    writer.release(&held.name, held.id).await.unwrap();
    fixture.proxy.remove(rule);
    let granted = token(fresh.acquire(params("orders", 4)).await.unwrap());
    assert!(granted > first + 1024 && granted >> 20 < clock::unix_seconds() + 3600);
}

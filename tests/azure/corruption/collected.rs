//! Blobs of locks that nobody has used for long, deleted by a daemon.

use std::{sync::Arc, time::Duration};

use azure_core::time::{OffsetDateTime, to_rfc7231};
use leasehold_store::{Acquire, AcquireParams, LeaseId};
use leasehold_test_support::proxy::{Fault, Kind, Match};
use leasehold_time::clock;
use leasehold_types::{Holder, LockName};

use super::record::{edited, rewrite};
use crate::scene::{DURATION, Scene, comes};

fn claim(lock: &str, id: u128) -> AcquireParams {
    AcquireParams {
        name: LockName::parse("", lock).unwrap(),
        id: LeaseId::new(id << 64 | 1),
        duration: DURATION,
        holder: Arc::new(Holder::default()),
        value: None,
        again: false,
    }
}

fn token(answer: Acquire) -> u64 {
    let Acquire::Acquired(mut acquired) = answer else { panic!("{answer:?}") };
    acquired.tokens.take().unwrap().get()
}

/// A lock that was used, and as if that had been hours ago: its epoch is.
async fn used_long_ago(scene: &Scene, lock: &str) -> u64 {
    let (store, claim) = (scene.store_past(), claim(lock, 1));
    let token = token(store.acquire(claim.clone()).await.unwrap());
    store.release(&claim.name, claim.id).await.unwrap();
    let old = token - ((5 * 3600) << 20);
    let record = edited(&scene.record(lock).await, "token", Some(&old.to_string()));
    rewrite(&scene.blob(lock), &record).await;
    old
}

#[tokio::test]
async fn idle_blobs_are_deleted_and_their_locks_go_on_with_greater_tokens() {
    let scene = Scene::new().await;
    let before = used_long_ago(&scene, "idle").await;
    used_long_ago(&scene, "held").await;
    scene.blob("held").acquire("0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10", 60).await.ok();
    let (store, new) = (scene.store_past(), claim("new", 2));
    token(store.acquire(new.clone()).await.unwrap());
    store.release(&new.name, new.id).await.unwrap();
    // By the storage's clock alone all of them are old enough.
    let later = clock::unix_seconds() as i64 + 3 * 3600;
    let later = to_rfc7231(&OffsetDateTime::from_unix_timestamp(later).unwrap());
    let date = Fault::Header { name: "date", value: Box::leak(later.into_boxed_str()) };
    scene.proxy.when(Kind::List).then(date);
    // A break note that was left behind, of the same age.
    scene.blob("idle/~break").put().await.ok();
    rewrite(&scene.blob("idle/~break"), &scene.record("idle").await).await;
    let collector = scene.store_that_collects(Duration::from_secs(1));
    let gone = async {
        for path in ["idle", "idle/~break"] {
            while scene.blob(path).head().await.is().0 != 404 {
                leasehold_runtime::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    comes("the end of the idle blob", gone).await;
    // Two further rounds.
    scene.proxy.clear();
    scene.proxy.wait_for_many(2, |seen| seen.kind == Kind::List && seen.is_over()).await;
    assert_eq!(scene.lease_state("held").await, "leased");
    assert_eq!(scene.lease_state("new").await, "available");
    let again = token(collector.acquire(claim("idle", 3)).await.unwrap());
    assert!(again > before);
}

/// A storage clock that is absurdly ahead is ignored. Then a record that another
/// process wrote may be an old one, and its token is not continued.
#[tokio::test]
async fn foreign_record_is_not_continued_while_date_is_absurd() {
    let scene = Scene::new().await;
    let (writer, mut held) = (scene.store(), claim("orders", 1));
    let first = token(writer.acquire(held.clone()).await.unwrap());
    writer.release(&held.name, held.id).await.unwrap();
    let absurd = clock::unix_seconds() as i64 + 2 * 24 * 3600;
    let absurd = to_rfc7231(&OffsetDateTime::from_unix_timestamp(absurd).unwrap());
    let date = Fault::Header { name: "date", value: Box::leak(absurd.into_boxed_str()) };
    let absurd = scene.proxy.when(Match::any()).then(date);
    let (fresh, refused) = (scene.store(), claim("orders", 2));
    match fresh.acquire(refused.clone()).await.unwrap() {
        Acquire::Unknown { why } => assert!(why.contains("clock"), "{why}"),
        other => panic!("{other:?}"),
    }
    fresh.release(&refused.name, refused.id).await.unwrap();
    // The process that wrote the record knows that it is the latest.
    held.id = LeaseId::new(3 << 64 | 1);
    assert_eq!(token(writer.acquire(held.clone()).await.unwrap()), first + 1024);
    writer.release(&held.name, held.id).await.unwrap();
    scene.proxy.remove(absurd);
    let granted = token(fresh.acquire(claim("orders", 4)).await.unwrap());
    assert!(granted > first + 1024 && granted >> 20 < clock::unix_seconds() + 3600);
}

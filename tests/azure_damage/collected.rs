//! Blobs of locks that nobody has used for long, deleted by a daemon.

use std::{sync::Arc, time::Duration};

use azure_core::time::{OffsetDateTime, to_rfc7231};
use leasehold::{
    clock,
    holder::Holder,
    lease::{Acquire, Claim, LeaseId},
    name::LockName,
};

use crate::support::{
    proxy::{Fault, Kind},
    scene::{DURATION, Scene, comes},
};

fn claim(lock: &str, id: u128) -> Claim {
    Claim {
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

#[tokio::test]
async fn idle_blobs_are_deleted_and_their_locks_go_on_with_greater_tokens() {
    let scene = Scene::new().await;
    let store = scene.store_past();
    let (idle, held) = (claim("idle", 1), claim("held", 2));
    let before = token(store.acquire(idle.clone()).await.unwrap());
    store.release(&idle.name, idle.id).await.unwrap();
    token(store.acquire(held).await.unwrap());
    // Three hours later, as listings tell the time.
    let later = clock::unix_seconds() as i64 + 3 * 3600;
    let later = to_rfc7231(&OffsetDateTime::from_unix_timestamp(later).unwrap());
    let date = Fault::Header { name: "date", value: Box::leak(later.into_boxed_str()) };
    scene.proxy.when(Kind::List).then(date);
    let collector = scene.store_that_collects(Duration::from_secs(3600));
    let gone = async {
        while scene.blob("idle").head().await.is().0 != 404 {
            clock::sleep(Duration::from_millis(20)).await;
        }
    };
    comes("the end of the idle blob", gone).await;
    assert_eq!(scene.lease_state("held").await, "leased");
    crate::the_services_clock_goes_on().await;
    let again = token(collector.acquire(claim("idle", 3)).await.unwrap());
    assert!(again > before);
}

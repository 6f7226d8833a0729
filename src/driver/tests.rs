//! Tests of a lock whose store calls panic.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use super::Driver;
use crate::telemetry::Telemetry;
use leasehold_core::{
    lock,
    session::{Message, Open, Request, Settings},
};
use leasehold_embedded_store::Embedded;
use leasehold_store::{
    Acquire, AcquireParams, Call, LeaseId, LeaseStore, Release, delegate::Delegate,
};
use leasehold_time::Entropy;
use leasehold_types::{Holder, LockName};

/// Store whose first acquires and releases panic.
struct Panicking {
    store: Embedded,
    acquires: AtomicU32,
    releases: AtomicU32,
}

impl Panicking {
    /// Makes the call, or panics if a panic is left.
    fn unless<T: Send + 'static>(left: &AtomicU32, call: impl FnOnce() -> Call<T>) -> Call<T> {
        match left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Call::pending(async { panic!("a call of the store panics") }),
            Err(_) => call(),
        }
    }
}

impl Delegate for Panicking {
    fn inner(&self) -> &dyn LeaseStore {
        &self.store
    }
    fn acquire(&self, claim: AcquireParams) -> Call<Acquire> {
        Self::unless(&self.acquires, || self.store.acquire(claim))
    }
    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        Self::unless(&self.releases, || self.store.release(name, id))
    }
}

#[tokio::test]
async fn lock_is_granted_after_its_calls_panicked() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let store = Panicking { store, acquires: AtomicU32::new(1), releases: AtomicU32::new(1) };
    let ttl = Duration::from_secs(60);
    let settings =
        Settings { default_ttl: ttl, max_ttl: ttl, max_sessions: 1, max_locks_per_session: 1 };
    let locks = lock::Settings {
        lease_duration: Duration::from_secs(15),
        linger: Duration::ZERO,
        poll_interval: Duration::from_secs(1),
        max_locks: 1,
        max_waiters_per_lock: 1,
        journal: leasehold_core::journal::Level::Off,
    };
    let driver =
        Driver::new(settings, locks, Arc::new(store), Entropy::seeded(1), Telemetry::default());
    driver.persist_ttl(ttl).await.unwrap();
    tokio::spawn(driver.clone().keep_time());

    let stream = driver.attach().unwrap();
    stream.open(Open { ttl, holder: Holder::default(), fenced: false });
    stream.request(Request::Acquire {
        request: 1,
        name: LockName::parse("", "a").unwrap(),
        wait: None,
        max_hold_time: None,
        lease_duration: None,
        value: None,
        trace: None,
    });
    loop {
        match poll_fn(|cx| stream.poll_message(cx)).await {
            Some(Ok(Message::Granted { request: 1, .. })) => break,
            Some(Ok(Message::Opened(_) | Message::Queued(_))) => {}
            other => panic!("{other:?}"),
        }
    }
}

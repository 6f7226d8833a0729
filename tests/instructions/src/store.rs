//! Store that answers immediately, as the embedded one does, without a disk.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::product::{
    Acquire, AcquireParams, Acquired, Break, Breaker, Call, CallCount, Error, Event, LeaseId,
    LeaseInfo, LeaseStore, LockId, LockName, LockSettings, Page, Publication, Publish, Release,
    Renew, SessionSettings, StoreAnswer, StoreCall, TokenRange,
};

/// Store with one new token per hold and per handoff.
#[derive(Default)]
pub(crate) struct MemoryStore {
    tokens: AtomicU64,
}

impl MemoryStore {
    fn take(&self) -> Call<Acquire> {
        let first = (1 << 40) + self.tokens.fetch_add(1, Relaxed);
        let acquired = Acquired { tokens: TokenRange::from(first, 1), deadline: None };
        Call::Done(Ok(Acquire::Acquired(acquired)))
    }

    /// Calls the store as the daemon does, and returns the event for the core.
    pub(crate) fn call(&self, lock: LockId, call: StoreCall) -> Event {
        let (id, answer) = match call {
            StoreCall::Acquire(claim) => {
                (claim.id, StoreAnswer::Acquire(done(LeaseStore::acquire(self, claim))))
            }
            StoreCall::NextTokens(name, id) => {
                (id, StoreAnswer::NextTokens(done(self.next_tokens(&name, id))))
            }
            StoreCall::Renew(name, id, duration) => {
                (id, StoreAnswer::Renew(done(self.renew(&name, id, duration))))
            }
            StoreCall::Release(name, id) => {
                (id, StoreAnswer::Release(done(self.release(&name, id))))
            }
            StoreCall::Publish(name, id, publication) => {
                (id, StoreAnswer::Publish(done(self.publish(&name, id, publication))))
            }
        };
        Event::Answered(lock, id, answer)
    }
}

fn done<T>(call: Call<T>) -> Result<T, Error> {
    match call {
        Call::Done(result) => result,
        Call::Pending(_) => panic!("this store answers immediately"),
    }
}

impl LeaseStore for MemoryStore {
    fn acquire(&self, _: AcquireParams) -> Call<Acquire> {
        self.take()
    }

    fn next_tokens(&self, _: &LockName, _: LeaseId) -> Call<Acquire> {
        self.take()
    }

    fn publish(&self, _: &LockName, _: LeaseId, _: Publication) -> Call<Publish> {
        Call::Done(Ok(Publish::Published))
    }

    fn renew(&self, _: &LockName, _: LeaseId, _: Duration) -> Call<Renew> {
        Call::Done(Ok(Renew::Renewed { deadline: None }))
    }

    fn release(&self, _: &LockName, _: LeaseId) -> Call<Release> {
        Call::Done(Ok(Release::Released))
    }

    fn break_lease(&self, _: &LockName, _: Breaker) -> Call<Break> {
        Call::Done(Ok(Break::NotHeld))
    }

    fn record_break(&self, _: &LockName, _: Breaker) -> Call<()> {
        Call::Done(Ok(()))
    }

    fn inspect(&self, _: &LockName) -> Call<Option<LeaseInfo>> {
        Call::Done(Ok(None))
    }

    fn list(&self, _: &Page) -> Call<Vec<LeaseInfo>> {
        Call::Done(Ok(Vec::new()))
    }

    fn persist_ttl(&self, _: Duration) -> Call<()> {
        Call::Done(Ok(()))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn unavailability(&self) -> Option<Error> {
        None
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn calls(&self) -> Vec<CallCount> {
        Vec::new()
    }

    fn close(&self) -> Call<()> {
        Call::Done(Ok(()))
    }
}

/// Settings without a limit that an operation could reach.
pub(crate) fn settings() -> (SessionSettings, LockSettings) {
    let sessions = SessionSettings {
        default_ttl: Duration::from_secs(60),
        max_ttl: Duration::from_secs(60),
        max_sessions: 1 << 20,
        max_locks_per_session: 1 << 20,
    };
    let locks = LockSettings {
        lease_duration: Duration::from_secs(30),
        linger: Duration::ZERO,
        poll_interval: Duration::from_secs(5),
        max_locks: 1 << 20,
        max_waiters_per_lock: 1 << 20,
        journal: leasehold_core::journal::Level::Off,
    };
    (sessions, locks)
}

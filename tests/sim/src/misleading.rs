//! Store that misleads the observers of elections: wrapped mutants o1 to o5.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold_runtime as task;
use leasehold_runtime::sleep;
use leasehold_store::{
    Acquire, AcquireParams, Break, Breaker, Call, CallCount, Error, LeaseId, LeaseInfo, LeaseStore,
    Page, Publication, Publish, Release, Renew,
};
use leasehold_types::LockName;

use crate::broken::{Wrapped, is};

/// Delay of a write that was acknowledged before it was sent.
const LATE: Duration = Duration::from_secs(2);

/// Publishes and reads as the active mutant has it; without one, as the store does.
pub struct Misleading<S> {
    /// The store.
    pub store: Arc<S>,
    /// By lock: the last publication of a leader who had a value.
    published: Mutex<HashMap<LockName, Publication>>,
    /// By lock: the answer to the last read.
    read: Arc<Mutex<HashMap<LockName, Option<LeaseInfo>>>>,
}

impl<S: LeaseStore> Misleading<S> {
    /// Wraps a store.
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), published: Mutex::default(), read: Arc::default() }
    }

    /// Remembers a publication. Returns the last one of another leader.
    fn former(&self, name: &LockName, publication: &Publication) -> Option<Publication> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let last = published.insert(name.clone(), publication.clone());
        last.filter(|last| last.value.is_some() && last.token != publication.token)
    }

    /// Publishes for a leader, and then once more for the one before.
    fn publish_former(
        &self,
        name: &LockName,
        id: LeaseId,
        publication: Publication,
    ) -> Call<Publish> {
        let former = self.former(name, &publication);
        let published = self.store.publish(name, id, publication);
        let (store, name) = (Arc::clone(&self.store), name.clone());
        Call::pending(async move {
            let answer = published.await?;
            if let Some(former) = former {
                _ = store.publish(&name, id, former).await;
            }
            Ok(answer)
        })
    }

    /// Answers each read with what the one before found.
    fn stale(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        let found = self.store.inspect(name);
        let (read, name) = (Arc::clone(&self.read), name.clone());
        Call::pending(async move {
            let found = found.await?;
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            let before = read.insert(name, found.clone());
            Ok(before.unwrap_or(found))
        })
    }
}

impl<S: LeaseStore> LeaseStore for Misleading<S> {
    fn publish(&self, name: &LockName, id: LeaseId, mut publication: Publication) -> Call<Publish> {
        if is(Wrapped::WrongValue) {
            publication.value = publication.value.map(|_| (*b"wrong").into());
        }
        if is(Wrapped::FormerLeader) {
            return self.publish_former(name, id, publication);
        }
        if is(Wrapped::NotWritten) {
            return Call::Done(Ok(Publish::Published));
        }
        if is(Wrapped::WrittenLater) {
            let (store, name) = (Arc::clone(&self.store), name.clone());
            task::spawn(async move {
                sleep(LATE).await;
                _ = store.publish(&name, id, publication).await;
            });
            return Call::Done(Ok(Publish::Published));
        }
        self.store.publish(name, id, publication)
    }
    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        if is(Wrapped::StaleRead) { self.stale(name) } else { self.store.inspect(name) }
    }
    fn acquire(&self, claim: AcquireParams) -> Call<Acquire> {
        self.store.acquire(claim)
    }
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        self.store.next_tokens(name, id)
    }
    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew> {
        self.store.renew(name, id, duration)
    }
    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        self.store.release(name, id)
    }
    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break> {
        self.store.break_lease(name, breaker)
    }
    fn note_break(&self, name: &LockName, breaker: Breaker) -> Call<()> {
        self.store.note_break(name, breaker)
    }
    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>> {
        self.store.list(page)
    }
    fn cover(&self, ttl: Duration) -> Call<()> {
        self.store.cover(ttl)
    }
    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }
    fn trouble(&self) -> Option<Error> {
        self.store.trouble()
    }
    fn describe(&self) -> String {
        self.store.describe()
    }
    fn calls(&self) -> Vec<CallCount> {
        self.store.calls()
    }
    fn close(&self) -> Call<()> {
        self.store.close()
    }
}

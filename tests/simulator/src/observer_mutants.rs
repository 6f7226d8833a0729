//! Store with defects that observers of elections see: wrapped mutants o1 to
//! o5.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold_runtime as task;
use leasehold_runtime::sleep;
use leasehold_store::{
    Call, LeaseId, LeaseInfo, LeaseStore, Publication, Publish, delegate::Delegate,
};
use leasehold_types::LockName;

use crate::broken::{Wrapped, is};

/// Delay of a write acknowledged before it was sent.
const WRITE_DELAY: Duration = Duration::from_secs(2);

/// Store with the defect of the active mutant in publications and reads.
pub struct ObserverMutants<S> {
    /// Wrapped store.
    pub store: Arc<S>,
    /// Last publication with a value, by lock.
    published: Mutex<HashMap<LockName, Publication>>,
    /// Result of the last read, by lock.
    read: Arc<Mutex<HashMap<LockName, Option<LeaseInfo>>>>,
}

impl<S: LeaseStore> ObserverMutants<S> {
    /// Wraps a store.
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), published: Mutex::default(), read: Arc::default() }
    }

    /// Records a publication. Returns the last one of another leader.
    fn former(&self, name: &LockName, publication: &Publication) -> Option<Publication> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let last = published.insert(name.clone(), publication.clone());
        last.filter(|last| last.value.is_some() && last.token != publication.token)
    }

    /// Publishes for a leader, then repeats the publication of the previous
    /// one.
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

    /// Returns the result of the previous read.
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

impl<S: LeaseStore> Delegate for ObserverMutants<S> {
    fn inner(&self) -> &dyn LeaseStore {
        &*self.store
    }
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
                sleep(WRITE_DELAY).await;
                _ = store.publish(&name, id, publication).await;
            });
            return Call::Done(Ok(Publish::Published));
        }
        self.store.publish(name, id, publication)
    }
    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        if is(Wrapped::StaleRead) { self.stale(name) } else { self.store.inspect(name) }
    }
}

//! Store that breaks a safety rule: wrapped mutants 1, 7c, 10 and 13c.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold_store::{
    Acquire, AcquireParams, Acquired, Call, LeaseId, LeaseStore, Publication, Publish, Release,
    Renew, delegate::Delegate,
};
use leasehold_types::{LockName, TokenRange};

use crate::{
    broken::{Wrapped, is},
    sim_state::sim,
};

/// Store of one daemon, with the defect of the active mutant.
pub struct BrokenStore<S> {
    store: S,
    place: usize,
    number: u32,
    /// Leases whose renewal found them lost.
    lost: Arc<Mutex<HashSet<LeaseId>>>,
}

impl<S: LeaseStore> BrokenStore<S> {
    /// Wraps the store of the daemon with this number.
    pub fn new(store: S, place: usize, number: u32) -> Self {
        Self { store, place, number, lost: Arc::default() }
    }

    /// Lease ID that is sent to the storage.
    fn id(&self, id: LeaseId) -> LeaseId {
        if is(Wrapped::SameLeaseId) { LeaseId::new(u128::from(self.number) + 1) } else { id }
    }

    fn is_swallowed(&self, id: LeaseId) -> bool {
        let is_lost = || self.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(&id);
        let is_draining = || sim().places.borrow()[self.place].draining == Some(self.number);
        (is(Wrapped::LostIsNotReleased) && is_lost())
            || (is(Wrapped::LeasesKeptAtShutdown) && is_draining())
    }
}

/// Replaces the tokens of a hold with those of the last hold before the
/// restart, if any.
fn predecessors(place: usize, number: u32, name: LockName, tokens: TokenRange) -> TokenRange {
    let sim = sim();
    let mut places = sim.places.borrow_mut();
    let known = places[place].tokens.get(&name);
    let tokens = known.filter(|(before, _)| *before != number).map_or(tokens, |(_, old)| *old);
    places[place].tokens.insert(name, (number, tokens));
    tokens
}

impl<S: LeaseStore> Delegate for BrokenStore<S> {
    fn inner(&self) -> &dyn LeaseStore {
        &self.store
    }

    fn acquire(&self, mut params: AcquireParams) -> Call<Acquire> {
        params.id = self.id(params.id);
        if !is(Wrapped::ResumedEpoch) {
            return self.store.acquire(params);
        }
        let (place, number, name) = (self.place, self.number, params.name.clone());
        let acquire = self.store.acquire(params);
        Call::pending(async move {
            Ok(match acquire.await? {
                Acquire::Acquired(Acquired { tokens, deadline }) => {
                    let tokens = predecessors(place, number, name, tokens);
                    Acquire::Acquired(Acquired { tokens, deadline })
                }
                other => other,
            })
        })
    }
    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew> {
        let renew = self.store.renew(name, self.id(id), duration);
        if !is(Wrapped::LostIsNotReleased) {
            return renew;
        }
        let lost = Arc::clone(&self.lost);
        Call::pending(async move {
            let answer = renew.await?;
            if matches!(answer, Renew::Lost { .. }) {
                lost.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
            }
            Ok(answer)
        })
    }
    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        if self.is_swallowed(id) {
            return Call::Done(Ok(Release::Released));
        }
        self.store.release(name, self.id(id))
    }
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        self.store.next_tokens(name, self.id(id))
    }
    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish> {
        self.store.publish(name, self.id(id), publication)
    }
}

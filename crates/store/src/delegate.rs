//! Delegation to another store, for test stores that change single calls.

use std::time::Duration;

use crate::{
    Acquire, AcquireParams, Break, Breaker, Call, CallCount, Endpoint, Error, LeaseId, LeaseInfo,
    LeaseStore, Page, Publication, Publish, Release, Renew, StoreStats,
};
use leasehold_types::LockName;

/// Store that forwards each call to an inner store, except for the calls that the implementor
/// defines.
#[allow(missing_docs, reason = "the methods are those of `LeaseStore`")]
pub trait Delegate: Send + Sync + 'static {
    /// The store that receives the forwarded calls.
    fn inner(&self) -> &dyn LeaseStore;

    fn acquire(&self, params: AcquireParams) -> Call<Acquire> {
        self.inner().acquire(params)
    }
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        self.inner().next_tokens(name, id)
    }
    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish> {
        self.inner().publish(name, id, publication)
    }
    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew> {
        self.inner().renew(name, id, duration)
    }
    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        self.inner().release(name, id)
    }
    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break> {
        self.inner().break_lease(name, breaker)
    }
    fn record_break(&self, name: &LockName, breaker: Breaker) -> Call<()> {
        self.inner().record_break(name, breaker)
    }
    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        self.inner().inspect(name)
    }
    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>> {
        self.inner().list(page)
    }
    fn persist_ttl(&self, ttl: Duration) -> Call<()> {
        self.inner().persist_ttl(ttl)
    }
    fn advertise(&self, endpoint: Endpoint) {
        self.inner().advertise(endpoint);
    }
    fn is_shared(&self) -> bool {
        self.inner().is_shared()
    }
    fn unavailability(&self) -> Option<Error> {
        self.inner().unavailability()
    }
    fn describe(&self) -> String {
        self.inner().describe()
    }
    fn calls(&self) -> Vec<CallCount> {
        self.inner().calls()
    }
    fn stats(&self) -> StoreStats {
        self.inner().stats()
    }
    fn close(&self) -> Call<()> {
        self.inner().close()
    }
}

impl<D: Delegate> LeaseStore for D {
    fn acquire(&self, params: AcquireParams) -> Call<Acquire> {
        Delegate::acquire(self, params)
    }
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        Delegate::next_tokens(self, name, id)
    }
    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish> {
        Delegate::publish(self, name, id, publication)
    }
    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew> {
        Delegate::renew(self, name, id, duration)
    }
    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        Delegate::release(self, name, id)
    }
    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break> {
        Delegate::break_lease(self, name, breaker)
    }
    fn record_break(&self, name: &LockName, breaker: Breaker) -> Call<()> {
        Delegate::record_break(self, name, breaker)
    }
    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        Delegate::inspect(self, name)
    }
    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>> {
        Delegate::list(self, page)
    }
    fn persist_ttl(&self, ttl: Duration) -> Call<()> {
        Delegate::persist_ttl(self, ttl)
    }
    fn advertise(&self, endpoint: Endpoint) {
        Delegate::advertise(self, endpoint);
    }
    fn is_shared(&self) -> bool {
        Delegate::is_shared(self)
    }
    fn unavailability(&self) -> Option<Error> {
        Delegate::unavailability(self)
    }
    fn describe(&self) -> String {
        Delegate::describe(self)
    }
    fn calls(&self) -> Vec<CallCount> {
        Delegate::calls(self)
    }
    fn stats(&self) -> StoreStats {
        Delegate::stats(self)
    }
    fn close(&self) -> Call<()> {
        Delegate::close(self)
    }
}

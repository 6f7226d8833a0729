//! A store that gives out few tokens at a time, so that holds run out of them.

use std::time::Duration;

use leasehold_store::{
    Acquire, AcquireParams, Acquired, Break, Breaker, Call, CallCount, Error, LeaseId, LeaseInfo,
    LeaseStore, Page, Publication, Publish, Release, Renew,
};
use leasehold_types::LockName;

/// Only so many of the tokens that a store gives are passed on.
pub struct Scarce<S> {
    /// The store.
    pub store: S,
    /// How many at a time.
    pub tokens: u64,
}

impl<S> Scarce<S> {
    fn few(&self, answer: Call<Acquire>) -> Call<Acquire> {
        let most = self.tokens;
        Call::pending(async move {
            Ok(match answer.await? {
                Acquire::Acquired(Acquired { mut tokens, deadline }) => {
                    Acquire::Acquired(Acquired { tokens: tokens.split(most), deadline })
                }
                other => other,
            })
        })
    }
}

impl<S: LeaseStore> LeaseStore for Scarce<S> {
    fn acquire(&self, claim: AcquireParams) -> Call<Acquire> {
        self.few(self.store.acquire(claim))
    }
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        self.few(self.store.next_tokens(name, id))
    }
    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish> {
        self.store.publish(name, id, publication)
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
    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        self.store.inspect(name)
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

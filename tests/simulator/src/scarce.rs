//! A store that gives out few tokens at a time, so that holds run out of them.

use leasehold_store::{
    Acquire, AcquireParams, Acquired, Call, LeaseId, LeaseStore, delegate::Delegate,
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

impl<S: LeaseStore> Delegate for Scarce<S> {
    fn inner(&self) -> &dyn LeaseStore {
        &self.store
    }
    fn acquire(&self, claim: AcquireParams) -> Call<Acquire> {
        self.few(self.store.acquire(claim))
    }
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        self.few(self.store.next_tokens(name, id))
    }
}

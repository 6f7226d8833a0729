//! Store with small token ranges, so that holds use them up.

use leasehold_store::{
    Acquire, AcquireParams, Acquired, Call, LeaseId, LeaseStore, delegate::Delegate,
};
use leasehold_types::LockName;

/// Store that truncates each token range of the wrapped store.
pub struct LimitedTokens<S> {
    /// Wrapped store.
    pub store: S,
    /// Maximum number of tokens in a range.
    pub tokens: u64,
}

impl<S> LimitedTokens<S> {
    fn truncate(&self, answer: Call<Acquire>) -> Call<Acquire> {
        let max = self.tokens;
        Call::pending(async move {
            Ok(match answer.await? {
                Acquire::Acquired(Acquired { mut tokens, deadline }) => {
                    Acquire::Acquired(Acquired { tokens: tokens.split(max), deadline })
                }
                other => other,
            })
        })
    }
}

impl<S: LeaseStore> Delegate for LimitedTokens<S> {
    fn inner(&self) -> &dyn LeaseStore {
        &self.store
    }
    fn acquire(&self, params: AcquireParams) -> Call<Acquire> {
        self.truncate(self.store.acquire(params))
    }
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        self.truncate(self.store.next_tokens(name, id))
    }
}

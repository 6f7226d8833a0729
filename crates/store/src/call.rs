//! Store calls of a lock and their answers, as values: the core returns a call as
//! an action and receives its answer as an event.

use std::time::Duration;

use leasehold_types::LockName;

use crate::{Acquire, AcquireParams, Error, LeaseId, Publication, Publish, Release, Renew};

/// A call of [`LeaseStore`](crate::LeaseStore) on behalf of one lock.
#[derive(Clone, Debug)]
pub enum StoreCall {
    /// [`LeaseStore::acquire`](crate::LeaseStore::acquire).
    Acquire(AcquireParams),
    /// [`LeaseStore::next_tokens`](crate::LeaseStore::next_tokens).
    NextTokens(LockName, LeaseId),
    /// [`LeaseStore::renew`](crate::LeaseStore::renew).
    Renew(LockName, LeaseId, Duration),
    /// [`LeaseStore::release`](crate::LeaseStore::release).
    Release(LockName, LeaseId),
    /// [`LeaseStore::publish`](crate::LeaseStore::publish).
    Publish(LockName, LeaseId, Publication),
}

/// The answer to the [`StoreCall`] of the same name.
#[derive(Debug)]
#[allow(missing_docs, reason = "each variant is documented with its call")]
pub enum StoreAnswer {
    Acquire(Result<Acquire, Error>),
    NextTokens(Result<Acquire, Error>),
    Renew(Result<Renew, Error>),
    Release(Result<Release, Error>),
    Publish(Result<Publish, Error>),
}

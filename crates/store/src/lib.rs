//! Interface of the lease stores.
//!
//! A store keeps one lease per lock and makes tokens durable. The layers above
//! work with any store. One conformance suite checks the requirements on a
//! store: `tests/support/src/store_conformance.rs`.

mod call;
#[cfg(feature = "delegate")]
pub mod delegate;
pub mod finding;
pub mod stats;

use std::{
    ops::{Bound, RangeInclusive},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

pub use call::{StoreAnswer, StoreCall};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Namespace, Token, TokenRange, secret};
pub use stats::StoreStats;

secret! {
    /// Lease ID of one acquisition. Each acquisition has a fresh random one, so
    /// that a delayed call can't affect a later hold (safety rule 1,
    /// docs/safety.md). Any process that knows it can release the lease.
    LeaseId
}

/// Range of lease durations, in whole seconds. Infinite leases are never used.
pub const LEASE_DURATIONS: RangeInclusive<Duration> =
    Duration::from_secs(15)..=Duration::from_secs(60);

/// Value published by a leader: at most [`MAX_VALUE_BYTES`] bytes.
pub type Value = Arc<[u8]>;

/// Maximum size of a leader's value.
pub const MAX_VALUE_BYTES: usize = 4096;

/// Data that a holder publishes to peers.
#[derive(Clone, Debug)]
pub struct Publication {
    /// Current holder of the lock.
    pub holder: Arc<Holder>,
    /// Token of its grant.
    pub token: Token,
    /// Time since the grant.
    pub held_for: Duration,
    /// Value of the leader; `None` if the holder is not a leader.
    pub value: Option<Value>,
}

/// Arguments of a lease acquisition.
#[derive(Clone, Debug)]
pub struct AcquireParams {
    /// The lock.
    pub name: LockName,
    /// Lease ID of this acquisition.
    pub id: LeaseId,
    /// Lease duration, in stores whose leases expire.
    pub duration: Duration,
    /// Description of the holder, visible to other contenders.
    pub holder: Arc<Holder>,
    /// Value to publish if the holder campaigns for an election.
    pub value: Option<Value>,
    /// True if an earlier attempt of this contender found the lease held. The
    /// lease is then most likely still held.
    pub is_retry: bool,
}

/// Acquired lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Token range of this hold: durable, and higher than all earlier tokens of
    /// this lock.
    pub tokens: TokenRange,
    /// Instant until which the lease is valid without a renewal (safety rule 3,
    /// docs/safety.md). `None` if leases last as long as this process.
    pub deadline: Option<Moment>,
}

/// Answer to an acquire.
#[derive(Clone, Debug)]
pub enum Acquire {
    /// This daemon holds the lease under the given lease ID.
    Acquired(Acquired),
    /// Another contender holds the lease.
    Held {
        /// Its holder, if known.
        by: Option<Arc<LeaseInfo>>,
    },
    /// The outcome is unknown: release the lease ID, then retry with a fresh one.
    Unknown {
        /// Human-readable cause.
        why: String,
    },
}

/// Answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renew {
    /// The lease was renewed.
    Renewed {
        /// As in [`Acquired`].
        deadline: Option<Moment>,
    },
    /// The lease is no longer held under this lease ID.
    Lost {
        /// Human-readable cause, as reported by the storage.
        why: String,
        /// Operator that broke it through a peer, if known.
        broken: Option<Breaker>,
    },
    /// The outcome is unknown; the old deadline remains.
    Unknown {
        /// Human-readable cause.
        why: String,
    },
}

/// Answer to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The lease with this ID is no longer held.
    Released,
    /// The lease may still be held: retry.
    Unknown {
        /// Human-readable cause.
        why: String,
    },
}

/// Answer to a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publish {
    /// The publication is visible to peers.
    Published,
    /// The lease is no longer held under this lease ID.
    Lost,
    /// The publication may be visible: retry.
    Unknown {
        /// Human-readable cause.
        why: String,
    },
}

/// Answer to a break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Break {
    /// The lease was broken: its holder can't renew it.
    Broken {
        /// Time until the lease expires.
        free_within: Duration,
    },
    /// The lease is not held.
    NotHeld,
    /// The lease may have been broken: retry.
    Unknown {
        /// Human-readable cause.
        why: String,
    },
}

/// Operator that broke a lock, stored with the lock and logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Name of the operator.
    pub by: Box<str>,
    /// Reason that the operator gave.
    pub reason: Box<str>,
}

/// Address at which a daemon accepts operators' requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `http://HOST:PORT` or `unix:/PATH`.
    pub address: Box<str>,
    /// Name of the only host on which it can be used, if there is only one.
    pub host: Option<Box<str>>,
}

/// State of a lease, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The lock.
    pub name: LockName,
    /// True if the lease is held.
    pub held: bool,
    /// The holder, as described when the lease was acquired.
    pub holder: Option<Arc<Holder>>,
    /// Token range of the hold, if known. The tokens of its grants are from it.
    pub tokens: Option<TokenRange>,
    /// Token of the leader, if the holder is one.
    pub leader: Option<Token>,
    /// Value published by the leader.
    pub value: Option<Value>,
    /// Human-readable name of the daemon that holds the lease, if known.
    pub daemon: Option<Arc<str>>,
    /// Address of that daemon, if known.
    pub endpoint: Option<Arc<Endpoint>>,
    /// Time since the lease was acquired, if known. Informational.
    pub held_for: Option<Duration>,
    /// Last operator that broke the lock, if recorded.
    pub broken: Option<Breaker>,
    /// Human-readable location in the storage, if there is one.
    pub location: Option<String>,
}

impl LeaseInfo {
    /// Creates the state of a free lease without further information.
    #[must_use]
    pub const fn free(name: LockName) -> Self {
        Self {
            name,
            held: false,
            holder: None,
            tokens: None,
            leader: None,
            value: None,
            daemon: None,
            endpoint: None,
            held_for: None,
            broken: None,
            location: None,
        }
    }
}

/// One page of a listing of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Namespace of the locks; `None` for all namespaces.
    pub namespace: Option<Namespace>,
    /// Prefix of the names within their namespace.
    pub prefix: String,
    /// Last name of the page before.
    pub after: Option<LockName>,
    /// Maximum number of locks.
    pub limit: usize,
}

impl Page {
    /// Returns whether a lock belongs to this page or to a later one.
    #[must_use]
    pub fn contains(&self, name: &LockName) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| name.namespace() == namespace.as_str())
            && name.name().starts_with(&self.prefix)
            && self.after.as_ref().is_none_or(|after| name > after)
    }

    /// Returns the names of the page, in order. `next` returns the first name of a
    /// range. Names without the prefix are skipped, not read one by one.
    pub fn names(
        &self,
        next: impl Fn((Bound<LockName>, Bound<LockName>)) -> Option<LockName>,
    ) -> Vec<LockName> {
        let prefix = self.prefix.as_str();
        let mut found = Vec::new();
        let mut from = match (&self.after, &self.namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => {
                Bound::Included(LockName::prefix_start(namespace.as_str(), prefix))
            }
            (None, None) => Bound::Unbounded,
        };
        while found.len() < self.limit
            && let Some(name) = next((from, Bound::Unbounded))
        {
            from = if self.contains(&name) {
                found.push(name.clone());
                Bound::Excluded(name)
            } else if self.namespace.is_some() {
                break;
            } else if name.name() < prefix {
                Bound::Included(LockName::prefix_start(name.namespace(), prefix))
            } else {
                Bound::Included(LockName::namespace_end(name.namespace()))
            };
        }
        found
    }
}

/// Refusal of a store, which changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store can't be reached or does not accept writes.
    #[error("the store is unavailable: {why}")]
    Unavailable {
        /// Human-readable cause and fix.
        why: String,
        /// Delay before the next attempt, if known.
        retry_after: Option<Duration>,
    },
    /// The store waits until every grant from before a crash has ended.
    #[error(
        "the daemon is recovering from an unclean shutdown and grants no locks for another {}",
        tenths(*.remaining)
    )]
    Recovering {
        /// Remaining wait.
        remaining: Duration,
    },
    /// The stored state is invalid, or contradicts an earlier state.
    #[error("{why}")]
    DataLoss {
        /// Human-readable cause and fix.
        why: String,
    },
}

/// Formats a remaining time in tenths of a second, rounded up, as in "9.6s".
fn tenths(remaining: Duration) -> String {
    let tenths = remaining.as_millis().div_ceil(100).max(1);
    match tenths % 10 {
        0 => format!("{}s", tenths / 10),
        rest => format!("{}.{rest}s", tenths / 10),
    }
}

/// Number of storage calls since the daemon started, of one operation for one
/// purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// Operation, such as "renew".
    pub operation: &'static str,
    /// Purpose, such as "grant".
    pub purpose: &'static str,
    /// Number of calls.
    pub count: u64,
}

/// Call to a store.
pub enum Call<T> {
    /// Answered without waiting.
    Done(Result<T, Error>),
    /// In flight.
    Pending(Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'static>>),
}

impl<T> Call<T> {
    /// Creates a call that is in flight.
    pub fn pending(call: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self::Pending(Box::pin(call))
    }
}

impl<T: Send + 'static> IntoFuture for Call<T> {
    type Output = Result<T, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'static>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Done(result) => Box::pin(std::future::ready(result)),
            Self::Pending(call) => call,
        }
    }
}

/// Store of leases. Every call is idempotent.
pub trait LeaseStore: Send + Sync + 'static {
    /// Acquires the lease and makes tokens durable. A repeated call with the
    /// lease ID of the current hold succeeds as well.
    fn acquire(&self, params: AcquireParams) -> Call<Acquire>;
    /// Returns the next token range for a hold that has used up its own.
    /// [`Acquire::Held`] if the lease is no longer held under this ID.
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire>;
    /// Publishes the current holder and its value to peers. No-op if the store
    /// has no peers.
    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish>;
    /// Renews the lease for another `duration`, the one of the acquire.
    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew>;
    /// Releases the lease. No-op if it is not held under this ID.
    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release>;
    /// Breaks the lease: its holder can't renew it, and it is free when it
    /// expires. Until then, the holder's validity does not change.
    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break>;
    /// Records that a grant under a lease of this daemon was broken.
    fn record_break(&self, name: &LockName, breaker: Breaker) -> Call<()>;
    /// Returns the state of one lease; `None` if the store has none for the lock.
    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>>;
    /// Returns the leases of one page of a listing, in order.
    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>>;
    /// Persists `ttl`, so that after a crash the store waits at least this long
    /// before it grants. Must succeed before a session with this TTL opens.
    /// No-op if leases outlive the daemon.
    fn persist_ttl(&self, ttl: Duration) -> Call<()>;
    /// Sets the address that is stored with each new hold. No-op if the store
    /// has no peers.
    fn advertise(&self, _endpoint: Endpoint) {}
    /// Returns whether peers may have leases in the same storage.
    fn is_shared(&self) -> bool;
    /// Returns the reason why the store can't grant now, if there is one.
    fn unavailability(&self) -> Option<Error>;
    /// Returns a human-readable description: kind and location of the store.
    fn describe(&self) -> String;
    /// Returns the number of storage calls by operation and purpose.
    fn calls(&self) -> Vec<CallCount>;
    /// Returns the measurements of the store.
    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
    /// Records a clean shutdown, when no lease is held.
    fn close(&self) -> Call<()>;
}

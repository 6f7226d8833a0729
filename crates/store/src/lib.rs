//! Leases: what the storage promises, and how it is asked.
//!
//! A store keeps one lease per lock and makes tokens durable. Everything above
//! it works with any store; everything that a store must do is checked by one
//! conformance suite, `tests/support/src/store_conformance.rs`.

mod call;
#[cfg(feature = "delegate")]
pub mod delegate;
pub mod finding;

use std::{
    ops::{Bound, RangeInclusive},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

pub use call::{StoreAnswer, StoreCall};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Namespace, Token, TokenRange, secret};

secret! {
    /// Names one acquisition of a lease. A fresh random one for each, so that a
    /// call that was delayed can't touch a later hold (safety rule 1). Whoever
    /// has it can release the lease.
    LeaseId
}

/// How long a lease can last without a renewal, in whole seconds. An infinite
/// one is never taken.
pub const DURATIONS: RangeInclusive<Duration> = Duration::from_secs(15)..=Duration::from_secs(60);

/// What a leader shows to others: at most [`LONGEST_VALUE`] bytes.
pub type Value = Arc<[u8]>;

/// The longest value that a leader can show, in bytes.
pub const LONGEST_VALUE: usize = 4096;

/// What others are to see of a hold.
#[derive(Clone, Debug)]
pub struct Publication {
    /// Who holds the lock now.
    pub holder: Arc<Holder>,
    /// Its token.
    pub token: Token,
    /// For how long it has held it.
    pub held_for: Duration,
    /// What it shows, if it leads.
    pub value: Option<Value>,
}

/// Arguments of a lease acquisition.
#[derive(Clone, Debug)]
pub struct AcquireParams {
    /// The lock.
    pub name: LockName,
    /// This acquisition.
    pub id: LeaseId,
    /// How long the lease lasts without a renewal, where leases expire.
    pub duration: Duration,
    /// For whom: shown to other contenders.
    pub holder: Arc<Holder>,
    /// What the holder shows to others, if it campaigns.
    pub value: Option<Value>,
    /// Whether this contender has asked before and found the lease taken: then
    /// it most likely still is.
    pub again: bool,
}

/// A lease that was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Durable for this hold, greater than any token of this lock before.
    pub tokens: TokenRange,
    /// When to stop counting on the lease unless it was renewed (safety rule
    /// 3). None where a lease lasts as long as this process.
    pub deadline: Option<Moment>,
}

/// The answer to an acquire.
#[derive(Clone, Debug)]
pub enum Acquire {
    /// The lease is ours.
    Acquired(Acquired),
    /// It is another's.
    Held {
        /// Whose, if that is known.
        by: Option<Arc<LeaseInfo>>,
    },
    /// It may be ours or not: release it, then ask again with a fresh id.
    Unknown {
        /// What went wrong.
        why: String,
    },
}

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renew {
    /// The lease is ours until then.
    Renewed {
        /// As in [`Acquired`].
        deadline: Option<Moment>,
    },
    /// The lease is not ours any more.
    Lost {
        /// What the storage said.
        why: String,
        /// Operator that broke it through a peer, if known.
        broken: Option<Breaker>,
    },
    /// Nothing is known; the old deadline stands.
    Unknown {
        /// What went wrong.
        why: String,
    },
}

/// The answer to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Whoever had that lease has it no more.
    Released,
    /// It may still be held: ask again.
    Unknown {
        /// What went wrong.
        why: String,
    },
}

/// The answer to a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publish {
    /// Others can see it.
    Published,
    /// The lease is not ours any more.
    Lost,
    /// Perhaps they can: ask again.
    Unknown {
        /// What went wrong.
        why: String,
    },
}

/// The answer to a break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Break {
    /// Whoever has the lease can't renew it; it is free after this long.
    Broken {
        /// What is left of its term.
        free_within: Duration,
    },
    /// Nobody has it.
    NotHeld,
    /// Perhaps: ask again.
    Unknown {
        /// What went wrong.
        why: String,
    },
}

/// Who broke a lock, and why: noted with the lock and in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Who.
    pub by: Box<str>,
    /// Why.
    pub reason: Box<str>,
}

/// Address at which a daemon can be reached by operators' requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `http://HOST:PORT` or `unix:/PATH`.
    pub address: Box<str>,
    /// Name of the only host on which it can be used, if there is only one.
    pub host: Option<Box<str>>,
}

/// A lease as the storage shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The lock.
    pub name: LockName,
    /// Whether the lease is held.
    pub held: bool,
    /// The holder, as described when the lease was acquired.
    pub holder: Option<Arc<Holder>>,
    /// The tokens of that hold, if that is known: grants within it have some
    /// of these.
    pub tokens: Option<TokenRange>,
    /// The leader's token, if the holder leads.
    pub leader: Option<Token>,
    /// What the leader shows.
    pub value: Option<Value>,
    /// Which daemon has the lease, if that is known. For people.
    pub daemon: Option<Arc<str>>,
    /// Address of that daemon, if that is known.
    pub endpoint: Option<Arc<Endpoint>>,
    /// For how long it has been held, if that is known. For people.
    pub held_for: Option<Duration>,
    /// Who broke the lock last, if that was noted.
    pub broken: Option<Breaker>,
    /// Where it is stored, if that is worth knowing.
    pub location: Option<String>,
}

impl LeaseInfo {
    /// A lease that nobody has, and of which nothing else is known.
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
    /// Whether a lock belongs to this page or to one after it.
    #[must_use]
    pub fn contains(&self, name: &LockName) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| name.namespace() == namespace.as_str())
            && name.name().starts_with(&self.prefix)
            && self.after.as_ref().is_none_or(|after| name > after)
    }

    /// The names of the page, in order. `next` returns the first name of a range.
    /// Names without the prefix are skipped, not read one by one.
    pub fn names(
        &self,
        next: impl Fn((Bound<LockName>, Bound<LockName>)) -> Option<LockName>,
    ) -> Vec<LockName> {
        let prefix = self.prefix.as_str();
        let mut found = Vec::new();
        let mut from = match (&self.after, &self.namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => {
                Bound::Included(LockName::start_of(namespace.as_str(), prefix))
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
                Bound::Included(LockName::start_of(name.namespace(), prefix))
            } else {
                Bound::Included(LockName::end_of(name.namespace()))
            };
        }
        found
    }
}

/// A store said no, and nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It can't be reached, or does not take writes.
    #[error("the store is unavailable: {why}")]
    Unavailable {
        /// What went wrong, and what to do.
        why: String,
        /// When to ask again.
        retry_after: Option<Duration>,
    },
    /// It waits until no holder from before a crash can believe in its grant.
    #[error(
        "the daemon is recovering from an unclean shutdown and grants no locks for another {}",
        tenths(*.remaining)
    )]
    Recovering {
        /// For how much longer.
        remaining: Duration,
    },
    /// What is stored contradicts what was seen before.
    #[error("{why}")]
    DataLoss {
        /// What was found, and what to do.
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

/// How often the storage was called since the daemon was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// What was done, such as "renew".
    pub operation: &'static str,
    /// Why, such as "grant".
    pub purpose: &'static str,
    /// How often.
    pub count: u64,
}

/// A call to a store.
pub enum Call<T> {
    /// Answered without waiting for anything.
    Done(Result<T, Error>),
    /// Under way.
    Pending(Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'static>>),
}

impl<T> Call<T> {
    /// A call that must be waited for.
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

/// A place where leases are kept. All calls may be repeated safely.
pub trait LeaseStore: Send + Sync + 'static {
    /// Acquires the lease and makes tokens durable. Asking again with the same
    /// id while holding it is answered like the first time.
    fn acquire(&self, claim: AcquireParams) -> Call<Acquire>;
    /// More tokens for a hold that has used up its own. [`Acquire::Held`] if
    /// the lease is not ours any more.
    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire>;
    /// Shows others who holds the lock now, where there are others.
    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish>;
    /// Keeps the lease for another duration, the one with which it was
    /// acquired.
    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew>;
    /// Gives the lease up. One that is not ours is left alone.
    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release>;
    /// Takes the lease from whoever has it: it can't be renewed any more, and
    /// is free when its term is over, so that its holder is not surprised.
    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break>;
    /// Notes with a lock whose lease is ours that its grant was broken.
    fn note_break(&self, name: &LockName, breaker: Breaker) -> Call<()>;
    /// Looks at one lease.
    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>>;
    /// Leases of one page of a listing, in order.
    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>>;
    /// Sees to it that a crash from now on is followed by a wait of at least
    /// this long before anything is granted, where the store needs that. Must
    /// have succeeded before a session with this ttl is given anything.
    fn cover(&self, ttl: Duration) -> Call<()>;
    /// Sets the address that is stored with each hold from now on, where there
    /// are peers that can read it.
    fn advertise(&self, _endpoint: Endpoint) {}
    /// Whether other daemons may have leases in it.
    fn is_shared(&self) -> bool;
    /// Why nothing can be granted at present, if so.
    fn trouble(&self) -> Option<Error>;
    /// What kind of store it is, and where, for people.
    fn describe(&self) -> String;
    /// How often the storage was called, by what was done and why.
    fn calls(&self) -> Vec<CallCount>;
    /// Ends cleanly, once nobody holds anything.
    fn close(&self) -> Call<()>;
}

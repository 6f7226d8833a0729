//! Journal: facts about locks, for the metrics, the history and the traces of a
//! daemon. The core appends an [`Entry`] when a fact occurs; nothing in the core
//! depends on it.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use leasehold_store::{Breaker, Error, LeaseInfo};
use leasehold_types::{Holder, LockName, Token};

use crate::lock::{Blocker, Cause, Refusal};

/// Number of the trace that an acquire belongs to. Assigned by the caller, opaque to
/// the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceKey(pub NonZeroU32);

/// Facts that the core appends to the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// None.
    #[default]
    Off,
    /// Facts about acquires and grants, and about failures.
    Events,
    /// Also the successful calls to the store.
    All,
}

impl Level {
    /// Returns whether facts are appended.
    #[must_use]
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Returns whether successful calls to the store are appended.
    #[must_use]
    pub const fn has_calls(self) -> bool {
        matches!(self, Self::All)
    }
}

/// Fact about a lock.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Lock that the fact is about.
    pub name: LockName,
    /// Description of the client that the fact is about, if there is one.
    pub holder: Option<Arc<Holder>>,
    /// Trace of that client's acquire, if it has one.
    pub trace: Option<TraceKey>,
    /// The fact.
    pub fact: Fact,
}

/// Kind of a fact, from the view of this daemon.
#[derive(Clone, Debug)]
pub enum Fact {
    /// An acquire did not compete: it repeats an earlier one, or its number is invalid.
    /// Appended for traced acquires only.
    Ignored,
    /// An acquire was not granted at once and waits.
    Queued,
    /// An acquire was granted.
    Granted {
        /// Token of the grant.
        token: Token,
        /// Time from the acquire to the grant.
        waited: Duration,
        /// Origin of the lease.
        source: Source,
        /// True if the holder leads an election.
        is_leader: bool,
    },
    /// An acquire was refused.
    Refused {
        /// Cause of the refusal.
        cause: RefusalCause,
        /// Time from the acquire to the refusal.
        waited: Duration,
    },
    /// An acquire left the queue: it was canceled, or its session ended.
    Canceled {
        /// Time from the acquire to its end.
        waited: Duration,
    },
    /// The holder released the lock, or closed its session.
    Released {
        /// Token of the grant.
        token: Token,
        /// Time from the grant to its end.
        held_for: Duration,
    },
    /// A grant was lost.
    Lost {
        /// Token of the grant.
        token: Token,
        /// Time from the grant to its loss.
        held_for: Duration,
        /// Cause of the loss.
        cause: Box<Cause>,
    },
    /// A grant will be lost unless its lease is renewed.
    AtRisk {
        /// Token of the grant.
        token: Token,
        /// Time until the loss.
        left: Duration,
    },
    /// A grant is no longer at risk.
    OutOfRisk {
        /// Token of the grant.
        token: Token,
    },
    /// An operator asked the holder to step down.
    StepDownRequested {
        /// Token of the grant.
        token: Token,
        /// Operator, and the given reason.
        breaker: Box<Breaker>,
        /// Time that the holder has.
        ends_in: Duration,
    },
    /// This daemon acquired the lease.
    LeaseAcquired {
        /// Duration of the call.
        took: Duration,
        /// True if a peer held the lease at the attempt before.
        is_from_peer: bool,
    },
    /// A peer holds the lease, as found by the first attempt to acquire it.
    HeldByPeer {
        /// Description of that hold, if known.
        by: Option<Arc<LeaseInfo>>,
    },
    /// The store refused the lease, or the outcome is unknown, at the first attempt to
    /// acquire it.
    StoreFailed {
        /// Human-readable cause.
        why: Box<str>,
    },
    /// The lease was renewed.
    Renewed {
        /// Duration of the call.
        took: Duration,
        /// Validity that was left when the answer arrived.
        left: Duration,
        /// Number of failed attempts before.
        failures: u32,
    },
    /// A renewal failed, or its outcome is unknown. It is retried.
    RenewalFailed {
        /// Duration of the call.
        took: Duration,
        /// Validity that was left when the answer arrived.
        left: Duration,
        /// Number of failed attempts, including this one.
        failures: u32,
    },
    /// The store found the lease lost at a renewal.
    LeaseLost,
    /// This daemon released the lease.
    LeaseReleased,
}

/// Origin of the lease of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The lease was acquired for this grant.
    Lease,
    /// Local handoff: the holder before had the same lease.
    Handoff,
    /// The lease was unused for a while.
    Linger,
}

/// Cause of the refusal of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// Another acquire holds the lock, and this one does not wait.
    Held,
    /// The maximum time to wait has ended.
    TimedOut,
    /// A limit of the daemon is reached.
    Limit,
    /// The daemon is shutting down.
    ShuttingDown,
    /// The store is unavailable.
    Unavailable,
    /// The daemon is recovering from an unclean shutdown.
    Recovering,
    /// The lock's record is invalid.
    DataLoss,
}

impl From<&Refusal> for RefusalCause {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Held | Refusal::Blocker(Blocker::HeldByPeer { .. }) => Self::Held,
            Refusal::TimedOut(_) => Self::TimedOut,
            Refusal::Limit(_) => Self::Limit,
            Refusal::ShuttingDown => Self::ShuttingDown,
            Refusal::Blocker(Blocker::StoreError(error)) => match error {
                Error::Unavailable { .. } => Self::Unavailable,
                Error::Recovering { .. } => Self::Recovering,
                Error::DataLoss { .. } => Self::DataLoss,
            },
        }
    }
}

//! Grants: "acquire A of session S holds lock L with token T".

use std::sync::Arc;

use leasehold_store::Value;
use leasehold_time::Moment;
use leasehold_types::{Holder, Token, secret};

use crate::journal::TraceKey;

/// Number of a session. It identifies the session for as long as that session has a
/// grant or a waiting acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u32);

impl SessionKey {
    /// Index in the table of sessions.
    #[must_use]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Position of a lock in the table, for as long as the lock has a holder or a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u32);

impl LockId {
    /// Index in the table of locks.
    #[must_use]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

secret! {
    /// Secret that authorizes the release of one grant. The token is public and
    /// carries no authority (safety rule 12).
    Handle
}

/// Cause of the end of a grant that its holder did not release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The session received no keep-alive within its TTL.
    Expired,
    /// An operator broke the lock.
    Broken {
        /// Name of the operator.
        by: Box<str>,
        /// Reason that the operator gave.
        reason: Box<str>,
    },
    /// The maximum hold time of the acquire has ended.
    MaxHoldTime,
    /// The storage lease is lost, or may have expired.
    LeaseLost {
        /// Human-readable cause.
        why: Box<str>,
    },
    /// An operator asked the leader to step down, and it did not do so in time.
    SteppedDown {
        /// Name of the operator.
        by: Box<str>,
        /// Reason that the operator gave.
        reason: Box<str>,
    },
    /// The daemon is shutting down.
    ShuttingDown,
}

/// Right of one acquire to a lock.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Session of the holder.
    pub session: SessionKey,
    /// Description of the session's client.
    pub holder: Arc<Holder>,
    /// Handle that a release must carry.
    pub handle: Handle,
    /// Fencing token.
    pub token: Token,
    /// Number of the acquire that the grant belongs to.
    pub request: u64,
    /// Start of the grant.
    pub since: Moment,
    /// Trace of the acquire, if it has one.
    pub trace: Option<TraceKey>,
    /// Time at which the grant ends, because of its maximum hold time or a step-down.
    pub hold_until: Option<Moment>,
    /// Cause of the end at `hold_until`. None means the maximum hold time.
    pub end_cause: Option<Box<Cause>>,
    /// Value that the holder publishes, if it leads an election.
    pub value: Option<Value>,
    /// Set when the grant is lost: the time at which the lock is free even if the
    /// holder does not release it. The holder may act until then.
    pub ends_at: Option<Moment>,
}

impl Grant {
    /// Returns whether the grant is neither released nor lost.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.ends_at.is_none()
    }
}

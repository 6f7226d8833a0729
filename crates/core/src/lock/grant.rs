//! A grant: "acquire A of session S holds lock L with token T".

use std::sync::Arc;

use leasehold_store::Value;
use leasehold_time::Moment;
use leasehold_types::{Holder, Token, secret};

/// A session, as locks know it: a number that stands for one session for as
/// long as that session waits for or holds anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u32);

impl SessionKey {
    /// Index in the table of sessions.
    #[must_use]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A lock's place in the table, for as long as it is held or waited for.
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
    /// Gives the authority to release one grant. The token is public and gives
    /// none (safety rule 12).
    Handle
}

/// Why a grant ended, or will, without its holder having asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The session was silent for longer than its ttl.
    Expired,
    /// An operator broke the lock.
    Broken {
        /// Who.
        by: Box<str>,
        /// Why.
        reason: Box<str>,
    },
    /// The longest hold that was asked for is over.
    MaxHoldTime,
    /// The storage lease is not ours any more, or not surely.
    LeaseLost {
        /// What is known.
        why: Box<str>,
    },
    /// An operator asked the leader to hand over, and it has not.
    SteppedDown {
        /// Who.
        by: Box<str>,
        /// Why.
        reason: Box<str>,
    },
    /// The daemon stops.
    ShuttingDown,
}

/// Right of one acquire to a lock.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The session that has it.
    pub session: SessionKey,
    /// Description of the session's client.
    pub holder: Arc<Holder>,
    /// What a release must name.
    pub handle: Handle,
    /// What the guarded resource compares.
    pub token: Token,
    /// Number of the acquire that the grant belongs to.
    pub request: u64,
    /// Since when.
    pub since: Moment,
    /// The longest hold, if there is one.
    pub hold_until: Option<Moment>,
    /// Why it is over then, if not because the longest hold is.
    pub end_cause: Option<Box<Cause>>,
    /// What the holder shows to others, if it leads.
    pub value: Option<Value>,
    /// Set once the holder was told that the grant is lost: when the lock is
    /// free for others even if the holder never lets go. Until then the holder
    /// may still be at work.
    pub ends_at: Option<Moment>,
}

impl Grant {
    /// Reports whether the grant is neither released nor lost.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.ends_at.is_none()
    }
}

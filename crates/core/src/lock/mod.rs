//! Lock table of this daemon: leases, grants and wait queues. Sans-IO:
//! [`Locks::on`] takes an event and a time and appends [`Effect`]s.
//!
//! This module has no access to streams, storage or clocks. Sessions are numbers.
//! Messages to sessions and calls to the store are effects. This file defines the
//! events and effects; `table.rs` has the table.

mod advance;
mod answer;
mod explain;
mod grant;
mod journal;
mod lease;
mod publish;
mod queue;
mod renew;
#[cfg(feature = "simulation")]
mod simulation;
mod state;
mod table;
mod visible;

use std::{sync::Arc, time::Duration};

pub use explain::{HeldLease, LeaseView, QueuedAcquire};
pub use grant::{Cause, Grant, Handle, LockId, SessionKey};
pub use lease::Blocker;
use leasehold_store::{StoreCall, Value};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Token};
pub use queue::{Ticket, WaitLimit};
pub use renew::RenewalSample;
pub use table::Locks;

use crate::journal::{Entry, Level, TraceKey};

/// Limits and durations from the daemon's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Lease duration of acquires that request none. Ignored by stores whose leases
    /// do not expire.
    pub lease_duration: Duration,
    /// Time for which an unused lease that expires is kept after its last local
    /// holder released the lock.
    pub linger: Duration,
    /// Maximum delay between two attempts to acquire a lease that a peer holds.
    pub poll_interval: Duration,
    /// Maximum number of locks that have a holder or a waiter.
    pub max_locks: usize,
    /// Maximum number of waiters of one lock.
    pub max_waiters_per_lock: usize,
    /// Facts that are appended to the journal.
    pub journal: Level,
}

/// Request for a lock.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// Name of the lock.
    pub name: LockName,
    /// Session that requests the lock.
    pub session: SessionKey,
    /// Description of the session's client, sent to other contenders.
    pub holder: Arc<Holder>,
    /// Session's number for this request.
    pub request: u64,
    /// Maximum time to wait.
    pub wait_limit: WaitLimit,
    /// Maximum hold time, if requested.
    pub max_hold_time: Option<Duration>,
    /// Lease duration, if requested. Used if the lease must be acquired for this
    /// request.
    pub lease_duration: Option<Duration>,
    /// Value to publish, if this is a campaign.
    pub value: Option<Value>,
    /// Trace of the request, if it has one.
    pub trace: Option<TraceKey>,
}

/// Input of the lock table.
#[derive(Debug)]
pub enum Event {
    /// A session requests a lock. Every acquire competes on its own, also with
    /// other acquires of its session.
    Acquire(Acquire),
    /// A waiter was canceled, or its session has ended. It receives no response.
    Leave(LockId, Ticket),
    /// A waiter's session has lost its stream (false), or has a stream again (true).
    Connected(LockId, Ticket, bool),
    /// The holder released the lock, or its session has ended. The cause is set if
    /// the client must be notified of the loss.
    Free(LockId, Option<Cause>),
    /// The grant is lost. The lock is free no later than at this time.
    End(LockId, Moment, Cause),
    /// The grant must be released by this time, and is lost for this cause
    /// otherwise. The time must not be before the end of the validities that were
    /// sent to the holder.
    Limit(LockId, Moment, Cause),
    /// The holder publishes a new value, in the request with this number.
    Proclaim(LockId, u64, Value),
    /// The daemon shuts down: waiters are refused, and so are later acquires.
    Drain,
    /// Time has passed.
    Tick,
}

/// Cause of the refusal of an acquire.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Another acquire holds the lock, and this one does not wait.
    Held,
    /// The maximum time to wait has ended. Contains the blocker, if the lease could
    /// not be acquired.
    TimedOut(Option<Blocker>),
    /// The lease can't be acquired now.
    Blocker(Blocker),
    /// The daemon is shutting down.
    ShuttingDown,
    /// A limit of the daemon is reached. Contains its name and value.
    Limit(String),
}

/// Output of the lock table.
#[derive(Debug)]
#[allow(missing_docs, reason = "the types of the fields describe them")]
pub enum Effect {
    /// An acquire has joined the queue. It may be granted in the same step.
    Joined { session: SessionKey, request: u64, lock: LockId, ticket: Ticket },
    /// A waiter was not granted the lock at once: send it its position.
    Queued { session: SessionKey, request: u64, lock: LockId, position: u32 },
    /// An acquire has succeeded.
    Granted {
        session: SessionKey,
        request: u64,
        lock: LockId,
        handle: Handle,
        token: Token,
        /// Time at which the grant ends even if its session continues.
        limit: Option<Moment>,
    },
    /// An acquire has failed.
    Refused { session: SessionKey, request: u64, name: LockName, why: Refusal },
    /// A grant will be lost at `until` unless its lease is renewed.
    AtRisk { session: SessionKey, handle: Handle, name: LockName, until: Moment },
    /// A grant of this session is no longer at risk.
    OutOfRisk { session: SessionKey },
    /// A grant is lost. Its holder may act until [`Effect::Ended`].
    Lost { session: SessionKey, handle: Handle, name: LockName, cause: Cause },
    /// A lost grant has ended.
    Ended { session: SessionKey, handle: Handle },
    /// A proclaimed value is visible at all daemons.
    Proclaimed { session: SessionKey, request: u64 },
    /// A proclaim has failed: the grant ended before the value was published, or
    /// there are too many pending proclaims.
    NotProclaimed { session: SessionKey, request: u64, too_many: bool },
    /// Call the store. [`Locks::answered`] takes the answer.
    Call(LockId, StoreCall),
    /// A fact for the journal.
    Journal(Entry),
    /// The visible state of a lock may have changed.
    Changed(LockName),
}

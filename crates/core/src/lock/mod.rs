//! All locks of this daemon: who holds them, who waits. Pure: told what
//! happened and when, it says what to do.
//!
//! Nothing here knows streams, storage or clocks. Sessions are numbers; what a
//! session must be told, and what the store must be asked, comes out as
//! [`Effect`]s. This file has the vocabulary; `table.rs` has the table.

mod advance;
mod answer;
mod grant;
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

pub use grant::{Cause, Grant, Handle, LockId, SessionKey};
pub use lease::Blocker;
use leasehold_store::{StoreCall, Value};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Token};
pub use queue::{Ticket, WaitLimit};
pub use table::Locks;

/// What locks must know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a lease lasts without a renewal, where leases expire and
    /// nobody asks for another length.
    pub lease_duration: Duration,
    /// How long a lease that expires is kept after the last local holder has
    /// let go, in case another comes.
    pub linger: Duration,
    /// The longest wait before a lease that another daemon holds is asked for
    /// again.
    pub poll_interval: Duration,
    /// How many locks may be held or waited for.
    pub max_locks: usize,
    /// How many may wait for one lock.
    pub max_waiters_per_lock: usize,
}

/// A request for a lock.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The lock.
    pub name: LockName,
    /// The session that requests it.
    pub session: SessionKey,
    /// Description of the session's client, shown to other contenders.
    pub holder: Arc<Holder>,
    /// The session's number for this request.
    pub request: u64,
    /// How long it waits.
    pub wait_limit: WaitLimit,
    /// The longest hold that it asks for.
    pub max_hold_time: Option<Duration>,
    /// The duration of the lease, if it must be acquired for this one.
    pub lease_duration: Option<Duration>,
    /// What it shows once it holds the lock, if it campaigns.
    pub value: Option<Value>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A session requests a lock. Every acquire competes on its own, also with
    /// other acquires of its session.
    Acquire(Acquire),
    /// A waiter gives up, or its session has ended. It is not answered.
    Leave(LockId, Ticket),
    /// A waiter's session has lost its stream, or has one again.
    Present(LockId, Ticket, bool),
    /// The holder lets go, or its session has ended: for this cause, if its client
    /// is to be notified of the loss.
    Free(LockId, Option<Cause>),
    /// The grant must end, at the latest at that moment.
    End(LockId, Moment, Cause),
    /// The grant must end by itself at that moment, which must not be before
    /// what the holder was promised; otherwise it is lost for this cause.
    Limit(LockId, Moment, Cause),
    /// The holder shows another value; its session's number for this request.
    Proclaim(LockId, u64, Value),
    /// The daemon stops: whoever waits is refused, now and from now on.
    Drain,
    /// Time has passed.
    Tick,
}

/// Why an acquire is refused.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Another acquire holds the lock, and this one does not wait.
    Held,
    /// Its wait is over; with the blocker, if the lease could not be acquired.
    TimedOut(Option<Blocker>),
    /// The lease can't be acquired now.
    Blocker(Blocker),
    /// The daemon stops.
    ShuttingDown,
    /// A limit is reached.
    Limit(String),
}

/// What to do.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are what their types say")]
pub enum Effect {
    /// An acquire has joined the queue, perhaps only for a moment.
    Waits { session: SessionKey, request: u64, lock: LockId, ticket: Ticket },
    /// A waiter is not served at once: tell it where it stands.
    Queued { session: SessionKey, request: u64, lock: LockId, position: u32 },
    /// An acquire has succeeded.
    Granted {
        session: SessionKey,
        request: u64,
        lock: LockId,
        handle: Handle,
        token: Token,
        /// When the grant ends whatever its session does.
        limit: Option<Moment>,
    },
    /// An acquire has failed.
    Refused { session: SessionKey, request: u64, name: LockName, why: Refusal },
    /// A grant will be lost at `until` unless its lease can be renewed.
    AtRisk { session: SessionKey, handle: Handle, name: LockName, until: Moment },
    /// What put a grant of this session at risk is over.
    OutOfRisk { session: SessionKey },
    /// A grant is lost. Its holder may be at work until [`Effect::Ended`].
    Lost { session: SessionKey, handle: Handle, name: LockName, cause: Cause },
    /// A lost grant is over.
    Ended { session: SessionKey, handle: Handle },
    /// Others can see what was proclaimed.
    Proclaimed { session: SessionKey, request: u64 },
    /// The lock was lost or given up before others could, or too many wait for
    /// that already.
    NotProclaimed { session: SessionKey, request: u64, too_many: bool },
    /// Call the store; the answer is passed to [`Locks::answered`].
    Call(LockId, StoreCall),
    /// A lock's state, as seen from outside, may have changed.
    Changed(LockName),
}

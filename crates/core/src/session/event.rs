//! Events and actions of sessions.

use std::{fmt, sync::Arc, time::Duration};

use super::{Message, Secret};
use crate::{
    error::RequestError,
    journal::{Entry, TraceKey},
    lock::{Handle, LockId},
};
use leasehold_store::{LeaseId, StoreAnswer, StoreCall, Value};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName};

/// Number of a stream. It is reused after [`Event::Detached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Public name of a session. Carries no authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub(super) u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Request to open a session.
#[derive(Clone, Debug)]
pub struct Open {
    /// TTL, from [`Settings::ttl`](super::Settings::ttl).
    pub ttl: Duration,
    /// Description of the client.
    pub holder: Holder,
    /// True if the session ends with its stream.
    pub fenced: bool,
}

/// Request of a client on the stream of an open session.
#[derive(Clone, Debug)]
pub enum Request {
    /// Extends the session.
    KeepAlive {
        /// Number of the keep-alive, which increases within the session.
        keep_alive_number: u64,
    },
    /// Requests a lock.
    Acquire {
        /// The client's number for this request.
        request: u64,
        /// Name of the lock.
        name: LockName,
        /// Maximum time to wait. None means until the session ends.
        wait: Option<Duration>,
        /// Maximum hold time, if requested.
        max_hold_time: Option<Duration>,
        /// Duration of the lease, if it must be acquired for this request.
        lease_duration: Option<Duration>,
        /// Value to publish, if this is a campaign.
        value: Option<Value>,
        /// Trace of the request, if it has one.
        trace: Option<TraceKey>,
    },
    /// Withdraws a waiting acquire.
    Cancel {
        /// Number of the acquire.
        request: u64,
    },
    /// Releases a lock.
    Release {
        /// The client's number for this request.
        request: u64,
        /// Handle of the grant.
        handle: Handle,
    },
    /// Changes the value that a leader publishes.
    Proclaim {
        /// The client's number for this request.
        request: u64,
        /// Handle of the grant.
        handle: Handle,
        /// New value.
        value: Value,
    },
    /// Ends the session.
    Close,
    /// A numbered request that is invalid. It is refused.
    Malformed {
        /// The client's number for this request.
        request: u64,
        /// Error to respond with.
        problem: Box<RequestError>,
    },
}

/// Input of the sessions.
#[derive(Debug)]
pub enum Event {
    /// A stream opens a session.
    Open(StreamId, Box<Open>),
    /// A stream resumes the session with this secret, with this keep-alive number.
    Resume(StreamId, Secret, u64),
    /// A request arrived on a stream.
    Request(StreamId, Request),
    /// A stream has ended.
    Detached(StreamId),
    /// An operator breaks a lock.
    Break {
        /// Name of the lock.
        name: LockName,
        /// Name of the operator.
        by: Box<str>,
        /// Reason that the operator gave.
        reason: Box<str>,
    },
    /// An operator asks the holder of a lock to step down.
    StepDown {
        /// Name of the lock.
        name: LockName,
        /// Name of the operator.
        by: Box<str>,
        /// Reason that the operator gave.
        reason: Box<str>,
        /// End of the grant if it is not released before, from [`Sessions::step_down_deadline`](super::Sessions::step_down_deadline).
        until: Moment,
    },
    /// The store answered a call for the lease with this ID.
    Answered(LockId, LeaseId, StoreAnswer),
    /// The daemon shuts down: it grants no more locks and warns holders, which have until
    /// this time to release theirs.
    Drain(Moment),
    /// The time for holders to release has ended: the remaining grants are lost.
    EndDrain,
    /// The wall clock advanced by this much relative to the boot-time clock.
    ClockJumped(Duration),
    /// Time has passed.
    Tick,
}

/// Output of the sessions.
#[derive(Debug)]
pub enum Action {
    /// Send a message on a stream.
    Send(StreamId, Message),
    /// End a stream after its pending messages.
    End(StreamId, Option<Box<RequestError>>),
    /// End a stream without sending pending messages: its session continues on another
    /// stream.
    Supersede(StreamId),
    /// Call the store. The answer arrives as [`Event::Answered`].
    Call(LockId, StoreCall),
    /// A fact for the journal.
    Journal(Entry),
    /// The visible state of a lock may have changed.
    Changed(LockName),
    /// Log that a session expired while it held locks.
    Expired(Box<ExpiredSession>),
}

/// A session that expired while it held locks.
#[derive(Debug)]
pub struct ExpiredSession {
    /// Public name of the session.
    pub id: SessionId,
    /// Description of its client.
    pub holder: Arc<Holder>,
    /// Time without a keep-alive after which it expired.
    pub ttl: Duration,
    /// Locks that it held, in no particular order.
    pub locks: Vec<LockName>,
}

//! What happens to sessions, and what is to be done about it.

use std::{fmt, sync::Arc, time::Duration};

use super::{Message, Secret};
use crate::{
    error::RequestError,
    lock::{Handle, LockId},
};
use leasehold_store::{LeaseId, StoreAnswer, StoreCall, Value};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName};

/// A stream that is or was open; numbers are used again after
/// [`Event::Detached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Names a session for people. Gives no authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub(super) u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A request to begin a session.
#[derive(Clone, Debug)]
pub struct Open {
    /// From [`Settings::ttl`](super::Settings::ttl).
    pub ttl: Duration,
    /// Who asks.
    pub holder: Holder,
    /// Whether to free everything as soon as the stream ends.
    pub fenced: bool,
}

/// What a client asks for on its stream, once its session is open.
#[derive(Clone, Debug)]
pub enum Request {
    /// "I am alive."
    KeepAlive {
        /// Rising.
        keep_alive_number: u64,
    },
    /// A lock.
    Acquire {
        /// The client's number for this request.
        request: u64,
        /// The lock.
        name: LockName,
        /// How long to wait; none means for as long as the session lives.
        wait: Option<Duration>,
        /// The longest hold.
        max_hold_time: Option<Duration>,
        /// The duration of the lease, if it must be acquired for this one.
        lease_duration: Option<Duration>,
        /// What it shows once it holds the lock, if it campaigns.
        value: Option<Value>,
    },
    /// An acquire is taken back.
    Cancel {
        /// Its number.
        request: u64,
    },
    /// A lock is given back.
    Release {
        /// The client's number for this request.
        request: u64,
        /// The grant.
        handle: Handle,
    },
    /// A leader shows another value.
    Proclaim {
        /// The client's number for this request.
        request: u64,
        /// The grant.
        handle: Handle,
        /// The value.
        value: Value,
    },
    /// The session is over.
    Close,
    /// It could not be understood; only to be answered.
    Malformed {
        /// The client's number for this request.
        request: u64,
        /// What is wrong with it.
        problem: Box<RequestError>,
    },
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A stream asks for a new session.
    Open(StreamId, Box<Open>),
    /// A stream takes up a session, with a fresh keep-alive.
    Resume(StreamId, Secret, u64),
    /// A stream asks for something.
    Request(StreamId, Request),
    /// A stream is gone.
    Detached(StreamId),
    /// An operator breaks a lock.
    Break {
        /// The lock.
        name: LockName,
        /// Who.
        by: Box<str>,
        /// Why.
        reason: Box<str>,
    },
    /// An operator asks the holder of a lock to let go within some time.
    StepDown {
        /// The lock.
        name: LockName,
        /// Who.
        by: Box<str>,
        /// Why.
        reason: Box<str>,
        /// From [`Sessions::step_down_by`](super::Sessions::step_down_by).
        until: Moment,
    },
    /// The store answered.
    Answered(LockId, LeaseId, StoreAnswer),
    /// The daemon will stop at that moment: grant nothing more, warn holders.
    Drain(Moment),
    /// The time for holders to let go is over: what they hold is lost.
    EndDrain,
    /// The wall clock has run ahead of ours by this much.
    ClockJumped(Duration),
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Tell a stream.
    Send(StreamId, Message),
    /// End a stream, after what it was sent before.
    End(StreamId, Option<Box<RequestError>>),
    /// End a stream whose session goes on elsewhere, with nothing more sent.
    Supersede(StreamId),
    /// Ask the store; the answer comes back as [`Event::Answered`].
    Call(LockId, StoreCall),
    /// A lock's state, as seen from outside, may have changed.
    Changed(LockName),
    /// A session expired while it held locks; for the log.
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

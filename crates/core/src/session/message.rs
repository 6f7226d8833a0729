//! Messages to the client of a session.

use std::{sync::Arc, time::Duration};

use super::SessionId;
use crate::{error::RequestError, lock::Handle};
use leasehold_store::Breaker;
use leasehold_types::{Holder, Reason, Token, secret};

/// Message to the client of a session. Validities count from the sending of the
/// keep-alive with the number in the message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Response to an open or a resume.
    Opened(Box<Opened>),
    /// Response to a keep-alive.
    KeptAlive {
        /// Number of the keep-alive.
        keep_alive_number: u64,
        /// Validity of the session and its grants, except for those in `limits`.
        valid_for: Duration,
        /// Grants with a shorter validity.
        limits: Vec<(Handle, Duration)>,
    },
    /// The session holds the lock.
    Granted {
        /// Number of the acquire.
        request: u64,
        /// The fencing token.
        token: Token,
        /// Handle that a release must carry.
        handle: Handle,
        /// Number of the keep-alive from which `valid_for` counts.
        keep_alive_number: u64,
        /// Validity of the grant.
        valid_for: Duration,
    },
    /// A request failed, or was canceled.
    Refused {
        /// Number of the request.
        request: u64,
        /// Error to respond with.
        problem: Box<RequestError>,
    },
    /// Position of a waiting acquire.
    Queued(Box<Queued>),
    /// Response to a proclaim: observers can see the value.
    Proclaimed {
        /// Number of the proclaim.
        request: u64,
    },
    /// A grant may be lost soon.
    AtRisk {
        /// Handle of the grant.
        handle: Handle,
        /// Machine-readable reason.
        reason: Reason,
        /// Human-readable message.
        message: Box<str>,
        /// Time until the grant ends.
        ends_in: Duration,
        /// Operator that requested it, with [`Reason::StepDown`].
        operator: Option<Box<Breaker>>,
    },
    /// A grant is lost.
    Lost {
        /// Handle of the grant.
        handle: Handle,
        /// Machine-readable reason.
        reason: Reason,
        /// Human-readable message.
        message: Box<str>,
        /// Operator that caused it, with [`Reason::Broken`] and
        /// [`Reason::StepDown`].
        operator: Option<Box<Breaker>>,
    },
    /// Response to a release.
    Released {
        /// Number of the release.
        request: u64,
    },
    /// End of the list that follows a resume.
    Restored,
}

/// The session is open.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Public name of the session.
    pub id: SessionId,
    /// Secret that a resume must carry. None in the response to a resume.
    pub secret: Option<Secret>,
    /// TTL of the session.
    pub ttl: Duration,
    /// Interval at which to send keep-alives.
    pub keep_alive_interval: Duration,
    /// Validity of the session.
    pub valid_for: Duration,
}

/// Position of a waiting acquire.
#[derive(Clone, Debug)]
pub struct Queued {
    /// Number of the acquire.
    pub request: u64,
    /// Number of waiters before it, plus one.
    pub position: u32,
    /// Holder of the lock, if known.
    pub holder: Option<Arc<Holder>>,
    /// Time since the lock was granted to the holder, if known.
    pub held_for: Option<Duration>,
    /// True if the holder is another acquire of the same session.
    pub held_by_same_session: bool,
    /// Reason why the lock is not granted although it has no holder. Empty otherwise.
    pub note: String,
}

secret! {
    /// Secret that authorizes a client to resume a session on a new stream.
    Secret
}

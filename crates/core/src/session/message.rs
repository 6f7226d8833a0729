//! What a session is told.

use std::{sync::Arc, time::Duration};

use super::SessionId;
use crate::{error::RequestError, lock::Handle};
use leasehold_store::Breaker;
use leasehold_types::{Holder, Reason, Token, secret};

/// A message to a session's client. Lengths of time count from when the client
/// sent the keep-alive that is named.
#[derive(Clone, Debug)]
pub enum Message {
    /// The session is open, or taken up again.
    Opened(Box<Opened>),
    /// The answer to a keep-alive.
    KeptAlive {
        /// The keep-alive that is answered.
        keep_alive_number: u64,
        /// How long grants are valid.
        valid_for: Duration,
        /// Those that end earlier.
        limits: Vec<(Handle, Duration)>,
    },
    /// The session holds the lock.
    Granted {
        /// The acquire that is answered.
        request: u64,
        /// The fencing token.
        token: Token,
        /// What a release must name.
        handle: Handle,
        /// The keep-alive from which `valid_for` counts.
        keep_alive_number: u64,
        /// How long the grant is valid.
        valid_for: Duration,
    },
    /// A request did not do what it asked for.
    Refused {
        /// The request.
        request: u64,
        /// Why.
        problem: Box<RequestError>,
    },
    /// A waiting acquire's place.
    Queued(Box<Queued>),
    /// What was proclaimed can be seen.
    Proclaimed {
        /// The request that is answered.
        request: u64,
    },
    /// A grant may be lost soon.
    AtRisk {
        /// The grant.
        handle: Handle,
        /// Why, for programs.
        reason: Reason,
        /// Why, for people.
        message: Box<str>,
        /// When it will end unless things improve.
        ends_in: Duration,
        /// Operator that asked for it, with [`Reason::StepDown`].
        operator: Option<Box<Breaker>>,
    },
    /// A grant is lost.
    Lost {
        /// The grant.
        handle: Handle,
        /// Why, for programs.
        reason: Reason,
        /// Why, for people.
        message: Box<str>,
        /// Operator that caused it, with [`Reason::Broken`] and
        /// [`Reason::StepDown`].
        operator: Option<Box<Breaker>>,
    },
    /// A lock was given back.
    Released {
        /// The release that is answered.
        request: u64,
    },
    /// The list that follows a resume is complete.
    Restored,
}

/// The session is open.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Its public name.
    pub id: SessionId,
    /// What a resume must show. None in the answer to a resume.
    pub secret: Option<Secret>,
    /// Its ttl.
    pub ttl: Duration,
    /// How often to send a keep-alive.
    pub keep_alive_every: Duration,
    /// How long grants are valid from here.
    pub valid_for: Duration,
}

/// A waiting acquire's place.
#[derive(Clone, Debug)]
pub struct Queued {
    /// The acquire.
    pub request: u64,
    /// How many are served before it, plus one.
    pub position: u32,
    /// Who holds the lock.
    pub holder: Option<Arc<Holder>>,
    /// For how long.
    pub held_for: Option<Duration>,
    /// Whether the holder is another acquire of the same session.
    pub held_by_same_session: bool,
    /// Why nobody is granted the lock though nobody holds it.
    pub note: String,
}

secret! {
    /// Gives the authority to take up a session on a new stream.
    Secret
}

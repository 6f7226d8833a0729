//! What can go wrong, by what the caller should do about it.

use std::time::Duration;

use crate::{Holder, pb};

/// Why a lock was not granted, or was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Another session holds the lock, and the request was not to wait.
    Held,
    /// The wait ended before the lock was free.
    TimedOut,
    /// The request was taken back.
    Cancelled,
    /// A field of the request is not acceptable.
    Invalid,
    /// The daemon knows no such grant of this session.
    UnknownHandle,
    /// The daemon is stopping.
    ShuttingDown,
    /// The daemon's storage can't be reached or does not accept writes.
    StoreUnavailable,
    /// The daemon waits until no holder from before its crash can still
    /// believe in its grant.
    Recovering,
    /// What is stored for the lock contradicts what was seen before.
    DataLoss,
    /// A limit of the daemon is reached.
    Limit,
    /// The session was not kept alive in time.
    Expired,
    /// An operator broke the lock.
    Broken,
    /// The longest hold that was asked for is over.
    HeldTooLong,
    /// The storage lease ended without having been renewed.
    LeaseLost,
    /// The daemon does not know the session any more.
    UnknownSession,
    /// Client and daemon have no version of the protocol in common.
    ProtocolVersion,
    /// The messages came in an order that the protocol does not allow.
    Protocol,
    /// An operator asked the leader to hand over.
    StepDown,
    /// Another client resumed the session, and has its grants now.
    ResumedElsewhere,
    /// The work did not show the progress that was
    /// [expected](crate::Leadership::expect_progress) of it. Told by the client
    /// itself.
    NoProgress,
    /// The leader gave up the leadership by
    /// [`hand_over`](crate::Leadership::hand_over), without having been asked.
    /// Told by the client itself.
    HandedOver,
    /// A reason that this version of the client does not know.
    Unknown,
}

impl From<pb::Reason> for Reason {
    fn from(reason: pb::Reason) -> Self {
        match reason {
            pb::Reason::Unspecified => Self::Unknown,
            pb::Reason::Held => Self::Held,
            pb::Reason::TimedOut => Self::TimedOut,
            pb::Reason::Cancelled => Self::Cancelled,
            pb::Reason::Invalid => Self::Invalid,
            pb::Reason::UnknownHandle => Self::UnknownHandle,
            pb::Reason::ShuttingDown => Self::ShuttingDown,
            pb::Reason::StoreUnavailable => Self::StoreUnavailable,
            pb::Reason::Recovering => Self::Recovering,
            pb::Reason::DataLoss => Self::DataLoss,
            pb::Reason::Limit => Self::Limit,
            pb::Reason::Expired => Self::Expired,
            pb::Reason::Broken => Self::Broken,
            pb::Reason::HeldTooLong => Self::HeldTooLong,
            pb::Reason::LeaseLost => Self::LeaseLost,
            pb::Reason::UnknownSession => Self::UnknownSession,
            pb::Reason::ProtocolVersion => Self::ProtocolVersion,
            pb::Reason::Protocol => Self::Protocol,
            pb::Reason::StepDown => Self::StepDown,
            pb::Reason::ResumedElsewhere => Self::ResumedElsewhere,
        }
    }
}

/// A call that did not do what was asked. Each variant says what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has the lock: try later, or give up.
    #[error("{message}")]
    NotGranted {
        /// The lock's name.
        lock: String,
        /// [`Reason::Held`] or [`Reason::TimedOut`].
        reason: Reason,
        /// For people.
        message: String,
        /// Who holds it, if it is known. Boxed to keep errors small.
        holder: Option<Box<Holder>>,
        /// For how long, if it is known.
        held_for: Option<Duration>,
        /// Whether the holder is another acquire of the same session.
        held_by_same_session: bool,
        /// When trying again makes sense, if the daemon can tell.
        retry_after: Option<Duration>,
    },
    /// The lock was held and is lost: stop at once what it protected.
    #[error("{message}")]
    Lost {
        /// The lock's name.
        lock: String,
        /// Why.
        reason: Reason,
        /// For people.
        message: String,
    },
    /// The daemon or its storage can't serve this now: try again.
    #[error("{message}")]
    Unavailable {
        /// For people.
        message: String,
        /// When trying again makes sense, if the daemon can tell.
        retry_after: Option<Duration>,
    },
    /// The call can't succeed as it is: change it.
    #[error("{message}")]
    Invalid {
        /// What is not acceptable.
        field: String,
        /// For people: what it is, and what is allowed.
        message: String,
    },
    /// What is stored for the lock contradicts what was seen before: a person
    /// must look at it. It is granted to nobody until then.
    #[error("{message}")]
    NeedsOperator {
        /// The lock's name.
        lock: String,
        /// For people.
        message: String,
    },
    /// Client and daemon don't understand each other: upgrade one of them.
    #[error("{message}")]
    Incompatible {
        /// For people.
        message: String,
    },
}

impl Error {
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after: None }
    }

    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.to_owned(), message: message.into() }
    }
}

//! What can go wrong, by what the caller should do about it.

use std::time::Duration;

use crate::{Holder, Reason};

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

//! Errors of fenced tables and blobs, by what to do about them.

use std::{fmt::Display, time::Duration};

use leasehold_azure_account::Fault;
use leasehold_client::Token;

use crate::Written;

/// Error of a fenced resource. The message says which place and token, what
/// happened, and what to do.
///
/// `P` is the place that the error is about, `C` the state that was found in
/// place of the expected one: see [`table::Error`](crate::table::Error) and
/// [`blob::Error`](crate::blob::Error).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error<P: Display, C: Display> {
    /// A newer holder of the lock has taken over. **Stop**, and acquire the lock
    /// again before anything else is read or written.
    #[error(
        "{place}: a newer holder has taken over{}. {}. Stop, and acquire the lock again",
        newer.map(|token| format!(" with token {token}")).unwrap_or_default(),
        written.told()
    )]
    Fenced {
        /// Place and token of the attempt.
        place: Box<P>,
        /// Token of the newer holder, if it could be read.
        newer: Option<Token>,
        /// Whether something was written before that.
        written: Written,
    },
    /// The lease of a [leased blob](crate::blob::LeasedBlob) is lost. **Stop**.
    #[error("{place}: the lease is lost: {message}. {}. Stop, and lease it again", written.told())]
    Lost {
        /// The blob.
        place: Box<P>,
        /// Human-readable.
        message: String,
        /// Whether something was written before that.
        written: Written,
    },
    /// Another state was expected. Nothing was written: read it again, and
    /// decide again.
    #[error("{place}: {conflict}. Nothing was written: read it again, and decide again")]
    Conflict {
        /// The row or blob.
        place: Box<P>,
        /// The state that was found.
        conflict: C,
    },
    /// The storage account can't be reached or can't serve this now: try again,
    /// if `written` is known; else read first what is there.
    #[error("{place}: {message}. {}", written.told())]
    Unavailable {
        /// Place of the attempt.
        place: Box<P>,
        /// Human-readable.
        message: String,
        /// Whether it was written all the same.
        written: Written,
        /// Minimum delay before the next attempt.
        retry_after: Duration,
    },
    /// It can't succeed as it is: change the call, the table or container, or
    /// the permissions of the caller. Nothing was written.
    #[error("{place}: {message}")]
    Invalid {
        /// Place of the attempt.
        place: Box<P>,
        /// Human-readable: the problem, and what is allowed.
        message: String,
    },
    /// The fence is gone or can't be understood. Nothing is written until a
    /// person has looked at it.
    #[error("{place}: {message}")]
    NeedsOperator {
        /// The row or blob that can't be understood.
        place: Box<P>,
        /// Human-readable.
        message: String,
    },
}

impl<P: Display + Clone, C: Display> Error<P, C> {
    pub(crate) fn invalid(place: &P, message: impl Into<String>) -> Self {
        Self::Invalid { place: Box::new(place.clone()), message: message.into() }
    }

    pub(crate) fn needs_operator(place: &P, message: impl Into<String>) -> Self {
        Self::NeedsOperator { place: Box::new(place.clone()), message: message.into() }
    }

    pub(crate) fn conflict(place: &P, conflict: C) -> Self {
        Self::Conflict { place: Box::new(place.clone()), conflict }
    }

    pub(crate) fn unavailable(place: &P, message: impl Into<String>, written: Written) -> Self {
        let (place, retry_after) = (Box::new(place.clone()), Duration::ZERO);
        Self::Unavailable { place, message: message.into(), written, retry_after }
    }

    /// Converts a fault. `changes` if the call would have changed something.
    /// `refused` converts a refusal by its status, code and message.
    pub(crate) fn from_fault(
        fault: &Fault,
        place: &P,
        changes: bool,
        refused: impl FnOnce(u16, &str, &str) -> Self,
    ) -> Self {
        match fault {
            Fault::Busy { why, .. } | Fault::Unsent { why } | Fault::Unclear { why } => {
                Self::Unavailable {
                    place: Box::new(place.clone()),
                    message: why.clone(),
                    written: Written::after(fault, changes),
                    retry_after: fault.retry_after(),
                }
            }
            Fault::Refused { status, code, message } => refused(*status, code, message),
        }
    }

    pub(crate) fn place_mut(&mut self) -> &mut P {
        match self {
            Self::Fenced { place, .. }
            | Self::Lost { place, .. }
            | Self::Conflict { place, .. }
            | Self::Unavailable { place, .. }
            | Self::Invalid { place, .. }
            | Self::NeedsOperator { place, .. } => place,
        }
    }
}

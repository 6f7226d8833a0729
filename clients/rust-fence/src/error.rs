//! Errors of fenced tables and blobs, grouped by the caller's next step.

use std::{fmt::Display, time::Duration};

use leasehold_azure_account::Fault;
use leasehold_client::Token;

use crate::{Written, fault};

/// Error of a fenced resource. The message names the resource and the token, the
/// problem, and the next step.
///
/// `P` identifies the resource, `C` the difference between the expected and the
/// actual state: see [`table::Error`](crate::table::Error) and
/// [`blob::Error`](crate::blob::Error).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error<P: Display, C: Display> {
    /// A newer holder of the lock has taken over. **Stop**, and acquire the lock
    /// again before the next read or write.
    #[error(
        "{place}: a newer holder has taken over{}. {}. Stop, and acquire the lock again",
        newer.map(|token| format!(" with token {token}")).unwrap_or_default(),
        written.sentence()
    )]
    Fenced {
        /// Place and token of the attempt.
        place: Box<P>,
        /// Token of the newer holder, if it could be read.
        newer: Option<Token>,
        /// Outcome of the call.
        written: Written,
    },
    /// The lease of a [leased blob](crate::blob::LeasedBlob) is lost. **Stop**.
    #[error("{place}: the lease is lost: {message}. {}. Stop, and lease it again", written.sentence())]
    Lost {
        /// Leased blob.
        place: Box<P>,
        /// Human-readable.
        message: String,
        /// Outcome of the call.
        written: Written,
    },
    /// The resource is not in the expected state. Nothing was written. Read it, and
    /// decide again.
    #[error("{place}: {conflict}. Nothing was written; read it and decide again")]
    Conflict {
        /// Row or blob.
        place: Box<P>,
        /// Difference from the expected state.
        conflict: C,
    },
    /// The storage account is unreachable or unable to serve the call. If
    /// `written` is [`Written::No`], retry; otherwise read the current state first.
    #[error("{place}: {message}. {}", written.sentence())]
    Unavailable {
        /// Place of the attempt.
        place: Box<P>,
        /// Human-readable.
        message: String,
        /// Outcome of the call.
        written: Written,
        /// Minimum delay before the next attempt.
        retry_after: Duration,
    },
    /// The call can't succeed. Change the call, the table or container, or the
    /// permissions of the credential. Nothing was written.
    #[error("{place}: {message}")]
    Invalid {
        /// Place of the attempt.
        place: Box<P>,
        /// Human-readable: the problem and the limit.
        message: String,
    },
    /// The fence is missing or invalid. Nothing is written until an operator has
    /// repaired it.
    #[error("{place}: {message}")]
    NeedsOperator {
        /// Row or blob with the fence.
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

    /// Converts a fault of a storage call. `changes`: whether the call was a write.
    /// `refused` converts a refusal by its status, code and message.
    pub(crate) fn from_fault(
        fault: &Fault,
        place: &P,
        changes: bool,
        refused: impl FnOnce(u16, &str, &str) -> Self,
    ) -> Self {
        let unavailable = |message, written, retry_after| Self::Unavailable {
            place: Box::new(place.clone()),
            message,
            written,
            retry_after,
        };
        fault::convert(fault, changes, unavailable, refused)
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

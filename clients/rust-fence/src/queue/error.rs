//! Errors of a queue, grouped by the caller's next step.

use std::{fmt, time::Duration};

use leasehold_azure_account::Fault;
use leasehold_client::Token;

use crate::{Written, fault};

/// Queue, message and token that an error refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the queue.
    pub queue: String,
    /// Message ID.
    pub message: Option<String>,
    /// Token of the holder.
    pub token: Option<Token>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {:?}", self.queue)?;
        if let Some(id) = &self.message {
            write!(f, ", message {id}")?;
        }
        self.token.map_or(Ok(()), |token| write!(f, ", token {token}"))
    }
}

/// Error of a queue. The message names the queue, the message ID and the token, the
/// problem, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock is lost. **Stop**. The message was not deleted, and is delivered to
    /// the next holder.
    #[error(
        "{place}: the lock is lost: {message}. The message was not deleted and will be delivered \
         again. Stop, and acquire the lock again"
    )]
    Lost {
        /// Queue, message and token.
        place: Box<Place>,
        /// Human-readable.
        message: String,
    },
    /// The visibility timeout could not be extended, or the receipt is no longer
    /// valid. This consumer has not deleted the message. It is delivered again,
    /// unless another consumer has deleted it. Continue with the next message. The
    /// handler of the next delivery must detect by the message ID that its effects
    /// may exist.
    #[error("{place}: {message}. It was not deleted and will be delivered again")]
    VisibilityLost {
        /// Queue, message and token.
        place: Box<Place>,
        /// Human-readable.
        message: String,
    },
    /// The storage account is unreachable or unable to serve the call. Retry after
    /// `retry_after`.
    #[error("{place}: {message}. {}", written.sentence())]
    Unavailable {
        /// Queue, message and token.
        place: Box<Place>,
        /// Human-readable.
        message: String,
        /// Outcome of the send or delete.
        written: Written,
        /// Minimum delay before the next attempt.
        retry_after: Duration,
    },
    /// The call can't succeed. Change the call, the queue, or the permissions of the
    /// credential.
    #[error("{place}: {message}")]
    Invalid {
        /// Queue, message and token.
        place: Box<Place>,
        /// Human-readable: the problem and the limit.
        message: String,
    },
}

impl Error {
    pub(super) fn invalid(place: &Place, message: impl Into<String>) -> Self {
        Self::Invalid { place: Box::new(place.clone()), message: message.into() }
    }

    pub(super) fn visibility_lost(place: &Place, message: impl Into<String>) -> Self {
        Self::VisibilityLost { place: Box::new(place.clone()), message: message.into() }
    }

    /// Converts a fault of a storage call. `changes`: whether the call was a send or a
    /// delete.
    pub(super) fn of(fault: &Fault, place: &Place, changes: bool) -> Self {
        let unavailable = |message, written, retry_after| Self::Unavailable {
            place: Box::new(place.clone()),
            message,
            written,
            retry_after,
        };
        fault::convert(fault, changes, unavailable, |status, code, message| {
            if ["MessageNotFound", "PopReceiptMismatch"].contains(&code) {
                let message = format!("its receipt is no longer valid ({code})");
                return Self::visibility_lost(place, message);
            }
            let missing = (code == "QueueNotFound")
                .then_some("no such queue; check its name and the account name, or create it");
            let rights = "The call needs permission to add, update and process messages: a SAS \
                          for queues with sp=raup, or the role Storage Queue Data Contributor";
            Self::invalid(place, fault::remedy(status, code, message, rights, missing))
        })
    }
}

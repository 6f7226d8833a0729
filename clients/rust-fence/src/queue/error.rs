//! What can go wrong with a queue, by what to do about it.

use std::{fmt, time::Duration};

use leasehold_azure_account::Fault;
use leasehold_client::Token;

use crate::{Written, fault::remedy};

/// What an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The queue's name.
    pub queue: String,
    /// The message's id.
    pub message: Option<String>,
    /// The token under which it was tried.
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

/// What can go wrong. The message says which queue, message and token, what
/// happened, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock is lost. **Stop**: the message was not deleted, and comes to
    /// the next holder.
    #[error(
        "{place}: the lock is lost: {message}. The message was not deleted and will be delivered \
         again. Stop, and acquire the lock again"
    )]
    Lost {
        /// What was under way.
        place: Box<Place>,
        /// For people.
        message: String,
    },
    /// The message could not be kept invisible for as long as it was worked on, or
    /// its receipt is not known any more. It was not deleted through this
    /// consumer and is delivered again, unless somebody else has deleted it:
    /// go on with the next; what was done must be found by the message's id.
    #[error("{place}: {message}. It was not deleted and will be delivered again")]
    VisibilityLost {
        /// The message.
        place: Box<Place>,
        /// For people.
        message: String,
    },
    /// The storage account can't be reached or can't serve this now: try again
    /// after `retry_after`.
    #[error("{place}: {message}. {}", written.told())]
    Unavailable {
        /// What was tried.
        place: Box<Place>,
        /// For people.
        message: String,
        /// Whether the message was sent or deleted all the same.
        written: Written,
        /// When to try again at the earliest.
        retry_after: Duration,
    },
    /// It can't succeed as it is: change the call, the queue, or what the
    /// caller is allowed to do.
    #[error("{place}: {message}")]
    Invalid {
        /// What was tried.
        place: Box<Place>,
        /// For people: what is wrong, and what is allowed.
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

    /// What a fault means. `changes` if the call would have sent or deleted
    /// something.
    pub(super) fn of(fault: &Fault, place: &Place, changes: bool) -> Self {
        match fault {
            Fault::Busy { why, .. } | Fault::Unsent { why } | Fault::Unclear { why } => {
                Self::Unavailable {
                    place: Box::new(place.clone()),
                    message: why.clone(),
                    written: Written::after(fault, changes),
                    retry_after: fault.retry_after(),
                }
            }
            Fault::Refused { code, .. }
                if ["MessageNotFound", "PopReceiptMismatch"].contains(&code.as_str()) =>
            {
                Self::visibility_lost(place, format!("the message is not ours any more ({code})"))
            }
            Fault::Refused { status, code, message } => {
                let missing = (code == "QueueNotFound").then_some(
                    "there is no such queue. Check its name and the account's, or create it",
                );
                let rights = "It needs the right to add, update and process messages: a SAS for \
                              queues with sp=raup, or the role Storage Queue Data Contributor";
                Self::invalid(place, remedy(*status, code, message, rights, missing))
            }
        }
    }
}

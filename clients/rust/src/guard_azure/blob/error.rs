//! What can go wrong with a blob, by what to do about it.

use std::time::Duration;

use super::Place;
use crate::{
    Token,
    azure::Fault,
    guard_azure::{Written, fault::remedy},
};

/// What can go wrong. The message says which blob and token, what happened,
/// and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A newer holder of the lock has taken over this blob. **Stop**, and
    /// acquire the lock again before anything else is read or written.
    #[error(
        "{place}: a newer holder has taken over with token {newer}. {}. Stop, and acquire the \
         lock again",
        written.told()
    )]
    Fenced {
        /// What was tried, and with which token.
        place: Box<Place>,
        /// The token of whoever took over.
        newer: Token,
        /// Whether something was written before that.
        written: Written,
    },
    /// The blob's lease is not ours any more. **Stop**.
    #[error("{place}: the lease is lost: {message}. {}. Stop, and lease it again", written.told())]
    Lost {
        /// The blob.
        place: Box<Place>,
        /// For people.
        message: String,
        /// Whether something was written before that.
        written: Written,
    },
    /// Another state of the blob was expected. Nothing was written: read it
    /// again, and decide anew.
    #[error("{place}: {conflict}. Nothing was written: look again, and decide anew")]
    Conflict {
        /// The blob.
        place: Box<Place>,
        /// What was found.
        conflict: Conflict,
    },
    /// The storage account can't be reached or can't serve this now: try again,
    /// if `written` is known; else read first what is there.
    #[error("{place}: {message}. {}", written.told())]
    Unavailable {
        /// What was tried.
        place: Box<Place>,
        /// For people.
        message: String,
        /// Whether it was written all the same.
        written: Written,
        /// When to try again at the earliest.
        retry_after: Duration,
    },
    /// It can't succeed as it is: change the call, the container, or what the
    /// caller is allowed to do. Nothing was written.
    #[error("{place}: {message}")]
    Invalid {
        /// What was tried.
        place: Box<Place>,
        /// For people: what is wrong, and what is allowed.
        message: String,
    },
    /// What guards the blob is gone or can't be understood. Nothing is written
    /// until a person has looked at it.
    #[error("{place}: {message}")]
    NeedsOperator {
        /// The blob.
        place: Box<Place>,
        /// For people.
        message: String,
    },
}

/// What was found in place of what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// The blob has changed since it had the ETag that was named.
    #[error("the blob has changed since it was read")]
    Changed,
    /// The blob that was to be created is there.
    #[error("the blob is there already")]
    Exists,
    /// The blob that was to be changed or deleted is not there.
    #[error("the blob is not there")]
    Missing,
    /// Somebody else has a lease on it.
    #[error("somebody else has a lease on the blob")]
    Leased,
}

impl Error {
    pub(super) fn invalid(place: &Place, message: impl Into<String>) -> Self {
        Self::Invalid { place: Box::new(place.clone()), message: message.into() }
    }

    pub(super) fn needs_operator(place: &Place, message: impl Into<String>) -> Self {
        Self::NeedsOperator { place: Box::new(place.clone()), message: message.into() }
    }

    pub(super) fn conflict(place: &Place, conflict: Conflict) -> Self {
        Self::Conflict { place: Box::new(place.clone()), conflict }
    }

    pub(super) fn unavailable(place: &Place, message: impl Into<String>, written: Written) -> Self {
        let (place, retry_after) = (Box::new(place.clone()), Duration::ZERO);
        Self::Unavailable { place, message: message.into(), written, retry_after }
    }

    /// What a fault means. `changes` if the call would have changed something.
    pub(super) fn of(fault: &Fault, place: &Place, changes: bool) -> Self {
        let written = if changes && fault.is_unclear() { Written::Unknown } else { Written::No };
        match fault {
            Fault::Busy { why, .. } | Fault::Unsent { why } | Fault::Unclear { why } => {
                Self::Unavailable {
                    place: Box::new(place.clone()),
                    message: why.clone(),
                    written,
                    retry_after: fault.retry_after(),
                }
            }
            Fault::Refused { status, code, message } => match (*status, code.as_str()) {
                (404, "BlobNotFound") => Self::conflict(place, Conflict::Missing),
                (409, "BlobAlreadyExists") => Self::conflict(place, Conflict::Exists),
                (409, "LeaseAlreadyPresent") | (412, "LeaseIdMissing") => {
                    Self::conflict(place, Conflict::Leased)
                }
                (412, "ConditionNotMet") => Self::conflict(place, Conflict::Changed),
                _ => {
                    let missing = (code == "ContainerNotFound").then_some(
                        "there is no such container. Check its name and the account's, or create it",
                    );
                    let rights = "It needs the right to read and write blobs: a SAS for blobs \
                                  with sp=rcw, or the role Storage Blob Data Contributor";
                    Self::invalid(place, remedy(*status, code, message, rights, missing))
                }
            },
        }
    }
}

//! What can go wrong with a table, by what to do about it.

use std::time::Duration;

use super::{
    Place, Written,
    fault::{is_missing_row, remedy},
};
use crate::{Token, azure::Fault};

/// What can go wrong. The message says which table, partition, row and token,
/// what happened, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A newer holder of the lock has taken over this partition. **Stop**, and
    /// acquire the lock again before anything else is read or written.
    #[error(
        "{place}: a newer holder has taken over{}. {}. Stop, and acquire the lock again",
        newer.map(|token| format!(" with token {token}")).unwrap_or_default(),
        written.told()
    )]
    Fenced {
        /// What was tried, and with which token.
        place: Box<Place>,
        /// The token of whoever took over, if it could be read.
        newer: Option<Token>,
        /// Whether something was written before that.
        written: Written,
    },
    /// Another state of the row was expected. Nothing was written: read it
    /// again, and decide anew.
    #[error("{place}: {conflict}. Nothing was written: read it again, and decide anew")]
    Conflict {
        /// The row.
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
    /// It can't succeed as it is: change the call, the table, or what the
    /// caller is allowed to do. Nothing was written.
    #[error("{place}: {message}")]
    Invalid {
        /// What was tried.
        place: Box<Place>,
        /// For people: what is wrong, and what is allowed.
        message: String,
    },
    /// What guards the partition can't be understood. Nothing is written until
    /// a person has looked at it.
    #[error("{place}: {message}")]
    NeedsOperator {
        /// The row that can't be understood.
        place: Box<Place>,
        /// For people.
        message: String,
    },
}

/// What was found in place of what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// The row has changed since it had the ETag that was named.
    #[error("the row has changed since it was read")]
    Changed,
    /// The row that was to be inserted is there.
    #[error("the row is there already")]
    Exists,
    /// The row that was to be changed or deleted is not there.
    #[error("the row is not there")]
    Missing,
    /// Another guard of the same token has come or written to the partition
    /// since this one did, so what was read before may have changed.
    #[error("another has come or written with the same token since")]
    SameToken,
}

impl Error {
    pub(super) fn invalid(place: &Place, message: impl Into<String>) -> Self {
        Self::Invalid { place: Box::new(place.clone()), message: message.into() }
    }

    /// The same error, of something that was tried with a token.
    pub(super) fn with_token(mut self, token: u64) -> Self {
        let (Self::Fenced { place, .. }
        | Self::Conflict { place, .. }
        | Self::Unavailable { place, .. }
        | Self::Invalid { place, .. }
        | Self::NeedsOperator { place, .. }) = &mut self;
        place.token = Some(Token::new(token));
        self
    }

    pub(super) fn needs_operator(place: &Place, message: impl Into<String>) -> Self {
        Self::NeedsOperator { place: Box::new(place.clone()), message: message.into() }
    }

    /// What a fault means for a call on a row. `changes` if the call would have
    /// changed something.
    pub(super) fn of(fault: &Fault, place: &Place, changes: bool) -> Self {
        let place = Box::new(place.clone());
        let written = if changes && fault.is_unclear() { Written::Unknown } else { Written::No };
        let unavailable = |why: &str| Self::Unavailable {
            place: place.clone(),
            message: why.to_owned(),
            written,
            retry_after: fault.retry_after(),
        };
        match fault {
            Fault::Busy { why, .. } | Fault::Unsent { why } | Fault::Unclear { why } => {
                unavailable(why)
            }
            fault if is_missing_row(fault) => Self::Conflict { place, conflict: Conflict::Missing },
            Fault::Refused { status, code, message } => match (*status, code.as_str()) {
                (409, "EntityAlreadyExists") => {
                    Self::Conflict { place, conflict: Conflict::Exists }
                }
                (412, _) => Self::Conflict { place, conflict: Conflict::Changed },
                _ => Self::Invalid { place, message: remedy(*status, code, message) },
            },
        }
    }
}

//! Failed requests.

use std::{sync::Arc, time::Duration};

use leasehold_types::{Holder, LockName, Reason, name::InvalidName};

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// Machine-readable reason.
    pub reason: Reason,
    /// Human-readable message: the event, the lock, the cause, and the fix.
    pub message: String,
    /// Field that is invalid.
    pub field: Option<&'static str>,
    /// Lock that the request is for.
    pub lock: Option<LockName>,
    /// Holder of the lock, if known.
    pub holder: Option<Arc<Holder>>,
    /// Time since the lock was granted to the holder.
    pub held_for: Option<Duration>,
    /// True if the holder is another acquire of the same session.
    pub held_by_same_session: bool,
    /// Delay after which a retry can succeed.
    pub retry_after: Option<Duration>,
}

impl RequestError {
    /// Creates an error with a reason and a message only.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            field: None,
            lock: None,
            holder: None,
            held_for: None,
            held_by_same_session: false,
            retry_after: None,
        }
    }

    /// Creates an error for an invalid field.
    #[must_use]
    pub fn invalid(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self { field: Some(field), ..Self::new(Reason::Invalid, format!("{field}: {problem}")) }
    }

    /// Creates an error for a field whose value violates the protocol at this point.
    #[must_use]
    pub fn violation(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self { field: Some(field), ..Self::new(Reason::Protocol, format!("{field}: {problem}")) }
    }
}

impl From<InvalidName> for RequestError {
    fn from(invalid: InvalidName) -> Self {
        Self::invalid(invalid.field, invalid.problem)
    }
}

//! Requests that failed, in terms of what to do about it.

use std::{sync::Arc, time::Duration};

use leasehold_types::{Holder, LockName, Reason, name::InvalidName};

/// A request that did not do what it asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// Why, for programs.
    pub reason: Reason,
    /// What happened, to which lock, and what to do.
    pub message: String,
    /// The field that is not acceptable.
    pub field: Option<&'static str>,
    /// The lock.
    pub lock: Option<LockName>,
    /// Who holds it, if somebody does.
    pub holder: Option<Arc<Holder>>,
    /// For how long.
    pub held_for: Option<Duration>,
    /// Whether the holder is another acquire of the same session.
    pub held_by_same_session: bool,
    /// When trying again makes sense.
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

    /// A field that is not acceptable.
    #[must_use]
    pub fn invalid(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self { field: Some(field), ..Self::new(Reason::Invalid, format!("{field}: {problem}")) }
    }

    /// A field whose value violates the order that the protocol requires.
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

//! Errors, grouped by the caller's next step.

use std::time::Duration;

use crate::{Holder, Reason};

/// Error of a call. The variants correspond to the caller's next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another acquire holds the lock. Retry later, or stop.
    #[error("{message}")]
    NotGranted {
        /// Name of the lock.
        lock: String,
        /// [`Reason::Held`] or [`Reason::TimedOut`].
        reason: Reason,
        /// Human-readable message.
        message: String,
        /// Current holder, if known. Boxed to keep errors small.
        holder: Option<Box<Holder>>,
        /// Time since the grant of the holder, if known.
        held_for: Option<Duration>,
        /// True if the holder is another acquire of the same session.
        held_by_same_session: bool,
        /// Minimum delay before a retry, if the daemon sent one.
        retry_after: Option<Duration>,
    },
    /// The lock is lost. Stop all work that it protected at once.
    #[error("{message}")]
    Lost {
        /// Name of the lock.
        lock: String,
        /// Machine-readable reason.
        reason: Reason,
        /// Human-readable message.
        message: String,
    },
    /// The daemon is unreachable or can't serve the request now. Retry.
    #[error("{message}")]
    Unavailable {
        /// Human-readable message.
        message: String,
        /// Minimum delay before a retry, if the daemon sent one.
        retry_after: Option<Duration>,
    },
    /// The request is invalid. Change it.
    #[error("{message}")]
    Invalid {
        /// Invalid parameter or field.
        field: String,
        /// Human-readable message: the problem and the allowed values.
        message: String,
    },
    /// The record of the lock is invalid or has regressed. The daemon does not
    /// grant the lock until an operator has repaired the record.
    #[error("{message}")]
    NeedsOperator {
        /// Name of the lock.
        lock: String,
        /// Human-readable message.
        message: String,
    },
    /// Client and daemon have no protocol version or feature in common. Upgrade
    /// one of them.
    #[error("{message}")]
    Incompatible {
        /// Human-readable message.
        message: String,
    },
}

/// Formats a duration as on a command line, in the largest unit that divides it:
/// "90s", "5h".
pub(crate) fn format_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 if duration.is_zero() => "0s".to_owned(),
        _ if duration.subsec_nanos() != 0 => format!("{duration:?}"),
        seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

impl Error {
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after: None }
    }

    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.to_owned(), message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_in_largest_unit() {
        for (millis, text) in [
            (0, "0s"),
            (10, "10ms"),
            (1500, "1.5s"),
            (90_000, "90s"),
            (120_000, "2m"),
            (18_000_000, "5h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
    }
}

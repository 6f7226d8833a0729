//! Reads gRPC statuses. The only place that does.

use std::error::Error as StdError;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::{Error, Reason, pb};

/// The reason that the daemon gave, if it gave one.
pub(crate) fn reason(status: &Status) -> Option<Reason> {
    let info = status.get_details_error_info().filter(|info| info.domain == "leasehold")?;
    let reason = pb::Reason::from_str_name(&format!("REASON_{}", info.reason))?;
    Some(Reason::from(reason))
}

/// What the caller of a failed call should do.
pub(crate) fn error(status: &Status) -> Error {
    let message = message(status);
    let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let lock = || {
        status
            .get_details_error_info()
            .and_then(|info| info.metadata.get("lock").cloned())
            .unwrap_or_default()
    };
    let field = || {
        status
            .get_details_bad_request()
            .and_then(|bad| bad.field_violations.into_iter().next())
            .map(|violation| violation.field)
            .unwrap_or_default()
    };
    match (reason(status), status.code()) {
        (Some(Reason::Invalid), _) => Error::Invalid { field: field(), message },
        (Some(Reason::DataLoss), _) => Error::NeedsOperator { lock: lock(), message },
        (Some(Reason::ProtocolVersion | Reason::Protocol), _) => Error::Incompatible { message },
        (Some(_), _) => Error::Unavailable { message, retry_after },
        (None, Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition) => {
            Error::Invalid { field: field(), message }
        }
        (None, Code::DataLoss) => Error::NeedsOperator { lock: lock(), message },
        (None, Code::Unimplemented) => Error::Incompatible {
            message: format!("this daemon does not offer what was asked for: {message}"),
        },
        (None, _) => Error::Unavailable { message, retry_after },
    }
}

/// What happened, for people: the daemon's words, or the causes of a failure
/// of the connection.
pub(crate) fn message(status: &Status) -> String {
    match status.source() {
        Some(source) => causes(source),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

/// An error with its causes, each said once.
pub(crate) fn causes(error: &dyn StdError) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !said.contains(&words) {
            said = format!("{said}: {words}");
        }
        next = cause.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, time::Duration};

    use tonic_types::ErrorDetails;

    use super::*;

    fn with_reason(code: Code, reason: &str) -> Status {
        let mut details = ErrorDetails::new();
        details
            .set_error_info(reason, "leasehold", HashMap::from([("lock".into(), "orders".into())]))
            .set_retry_info(Some(Duration::from_millis(1500)))
            .add_bad_request_violation("name", "it is empty");
        Status::with_error_details(code, "what happened", details)
    }

    #[test]
    fn the_reason_says_what_to_do() {
        let message = || "what happened".to_owned();
        let retry = Error::Unavailable {
            message: message(),
            retry_after: Some(Duration::from_millis(1500)),
        };
        for (reason, expected) in [
            ("INVALID", Error::Invalid { field: "name".into(), message: message() }),
            ("DATA_LOSS", Error::NeedsOperator { lock: "orders".into(), message: message() }),
            ("PROTOCOL_VERSION", Error::Incompatible { message: message() }),
            ("SHUTTING_DOWN", retry.clone()),
            ("STORE_UNAVAILABLE", retry.clone()),
            ("RECOVERING", retry.clone()),
            ("LIMIT", retry),
        ] {
            assert_eq!(error(&with_reason(Code::Unknown, reason)), expected, "{reason}");
        }
    }

    #[test]
    fn reasons_of_others_are_not_read() {
        let mut details = ErrorDetails::new();
        details.set_error_info("INVALID", "elsewhere", HashMap::new());
        let status = Status::with_error_details(Code::Unavailable, "away", details);
        assert_eq!(reason(&status), None);
        assert_eq!(error(&status), Error::unavailable("away"));
        assert_eq!(reason(&with_reason(Code::Unknown, "NEW_ONE")), None);
    }

    #[test]
    fn without_details_the_code_decides() {
        assert!(matches!(error(&Status::unimplemented("no")), Error::Incompatible { .. }));
        assert!(matches!(error(&Status::invalid_argument("no")), Error::Invalid { .. }));
        assert!(matches!(error(&Status::internal("no")), Error::Unavailable { .. }));
        assert_eq!(message(&Status::new(Code::Unavailable, "")), Code::Unavailable.description());
    }
}

//! Conversion of gRPC statuses to errors. No other module reads statuses.

use std::{error::Error as StdError, io::ErrorKind, time::Duration};

use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::{Error, Reason, pb};

/// Returns the reason in the details of a status, if any.
pub(crate) fn reason(status: &Status) -> Option<Reason> {
    let info = status.get_details_error_info().filter(|info| info.domain == "leasehold")?;
    let reason = pb::Reason::from_str_name(&format!("REASON_{}", info.reason))?;
    Some(leasehold_protocol::reason_from_wire(reason))
}

/// Converts the status of a failed call.
pub(crate) fn error(status: &Status) -> Error {
    let message = message(status);
    let retry_after = retry_after(status);
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
            message: format!("the daemon does not support this request: {message}"),
        },
        (None, _) => Error::Unavailable { message, retry_after },
    }
}

/// Returns the retry delay in the details of a status. The decoder of
/// `tonic_types` is not used, because it panics on the minimum number of seconds
/// in builds with overflow checks.
fn retry_after(status: &Status) -> Option<Duration> {
    let all = tonic_types::pb::Status::decode(status.details()).ok()?.details;
    let info = all.iter().find(|any| any.type_url == "type.googleapis.com/google.rpc.RetryInfo")?;
    let delay = tonic_types::pb::RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    let nanos = u32::try_from(delay.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(delay.seconds).ok()?, nanos))
}

/// Returns a human-readable message: that of the daemon, or the causes of a
/// failed connection.
pub(crate) fn message(status: &Status) -> String {
    match status.source() {
        Some(source) => causes(source),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

/// Returns the innermost cause of a failed connection. An error of the operating
/// system is reduced to its kind, as in "connection refused".
pub(crate) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    match root.downcast_ref::<std::io::Error>() {
        // Only a Unix socket has a path that may not exist.
        Some(error) if error.kind() == ErrorKind::NotFound => "no such socket".to_owned(),
        Some(error) if error.get_ref().is_none() || error.kind() == ErrorKind::TimedOut => {
            error.kind().to_string()
        }
        _ => root.to_string(),
    }
}

/// Formats an error with its causes, without repetitions.
pub(crate) fn causes(error: &dyn StdError) -> String {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        next = cause.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use leasehold_fuzz::{
        Fuzz,
        wire::{self, Field},
    };
    use tonic_types::ErrorDetails;

    use super::*;
    use crate::{ElectionState, Holder, LockInfo};

    fn with_reason(code: Code, reason: &str) -> Status {
        let mut details = ErrorDetails::new();
        details
            .set_error_info(reason, "leasehold", HashMap::from([("lock".into(), "orders".into())]))
            .set_retry_info(Some(Duration::from_millis(1500)))
            .add_bad_request_violation("name", "it is empty");
        Status::with_error_details(code, "what happened", details)
    }

    #[test]
    fn reason_selects_error_variant() {
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
    fn reason_of_other_domain_is_ignored() {
        let mut details = ErrorDetails::new();
        details.set_error_info("INVALID", "elsewhere", HashMap::new());
        let status = Status::with_error_details(Code::Unavailable, "offline", details);
        assert_eq!(reason(&status), None);
        assert_eq!(error(&status), Error::unavailable("offline"));
        assert_eq!(reason(&with_reason(Code::Unknown, "NEW_ONE")), None);
    }

    #[test]
    fn root_cause_of_connection_failure_is_named_once() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(root_cause(&refused()), "connection refused");
        assert_eq!(root_cause(&Status::from_error(Box::new(refused()))), "connection refused");
        assert_eq!(root_cause(&std::io::Error::other("no route")), "no route");
        assert_eq!(root_cause(&std::io::Error::from(ErrorKind::NotFound)), "no such socket");
        let late = std::io::Error::new(ErrorKind::TimedOut, "deadline has elapsed");
        assert_eq!(root_cause(&late), "timed out");
    }

    #[test]
    fn status_code_selects_error_without_details() {
        assert!(matches!(error(&Status::unimplemented("no")), Error::Incompatible { .. }));
        assert!(matches!(error(&Status::invalid_argument("no")), Error::Invalid { .. }));
        assert!(matches!(error(&Status::internal("no")), Error::Unavailable { .. }));
        assert_eq!(message(&Status::new(Code::Unavailable, "")), Code::Unavailable.description());
    }

    /// Converts responses of calls; returns the number of decodable ones.
    fn convert_responses(bytes: &[u8]) -> usize {
        let lock = pb::LockInfo::decode(bytes).map(LockInfo::from);
        let election = pb::ElectionState::decode(bytes).map(ElectionState::from);
        if let Ok(holder) = pb::Holder::decode(bytes).map(Holder::from) {
            assert!(!holder.to_string().is_empty());
        }
        usize::from(lock.is_ok()) + usize::from(election.is_ok())
    }

    #[test]
    fn any_status_converts_to_error_fuzzed() {
        let seeds = ["INVALID", "DATA_LOSS", "PROTOCOL", "RECOVERING", "HELD", "NEW_ONE"];
        let seeds = seeds.map(|reason| {
            let status = with_reason(Code::Aborted, reason);
            wire::write(&[
                Field::varint(1, 10),
                Field::bytes(2, status.message()),
                Field::bytes(3, status.details()),
            ])
        });
        Fuzz::new("status").nested().seeds(seeds).run(|input| {
            let (mut code, mut text, mut details) = (0, String::new(), Vec::new());
            for field in wire::read(input).0 {
                match (field.number, field.value) {
                    (1, wire::Value::Varint(number)) => code = number as i32,
                    (2, wire::Value::Bytes(bytes)) => {
                        text = String::from_utf8_lossy(&bytes).into_owned();
                    }
                    (3, wire::Value::Bytes(bytes)) => details = bytes,
                    _ => {}
                }
            }
            let read = convert_responses(&details);
            let status = Status::with_details(Code::from_i32(code), text, details.into());
            let error = error(&status);
            assert!(!error.to_string().is_empty(), "{error:?}");
            let retry = match &error {
                Error::Unavailable { retry_after, .. } => retry_after.is_some(),
                _ => false,
            };
            let kind = format!("{error:?}");
            let kind = kind.split(' ').next().unwrap_or_default();
            format!("{kind} {retry} {read} {:?} {:?}", reason(&status), status.code())
        });
    }
}

//! Converts errors to gRPC statuses with machine-readable details. The only place that
//! builds a status.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use leasehold_protocol::reason_to_wire;

use leasehold_core::error::RequestError;
use leasehold_store as lease;
use leasehold_types::Reason;

const fn code(reason: Reason) -> Code {
    match reason {
        Reason::TimedOut => Code::DeadlineExceeded,
        Reason::Canceled => Code::Cancelled,
        Reason::Invalid => Code::InvalidArgument,
        Reason::UnknownHandle | Reason::UnknownSession => Code::NotFound,
        Reason::ShuttingDown | Reason::StoreUnavailable | Reason::Recovering => Code::Unavailable,
        Reason::DataLoss => Code::DataLoss,
        Reason::Limit => Code::ResourceExhausted,
        Reason::Held | Reason::ProtocolVersion | Reason::Protocol => Code::FailedPrecondition,
        Reason::Expired
        | Reason::Broken
        | Reason::MaxHoldTime
        | Reason::LeaseLost
        | Reason::StepDown
        | Reason::ResumedElsewhere => Code::Aborted,
        // Reasons that only a client reports.
        _ => Code::Unknown,
    }
}

/// Returns the status for an error.
pub(super) fn status(problem: RequestError) -> Status {
    let mut metadata = HashMap::new();
    if let Some(lock) = &problem.lock {
        metadata.insert("namespace".to_owned(), lock.namespace().to_owned());
        metadata.insert("lock".to_owned(), lock.name().to_owned());
    }
    if let Some(holder) = &problem.holder {
        metadata.insert("holder".to_owned(), holder.to_string());
    }
    if let Some(length) = problem.held_for {
        metadata.insert("held_for_ms".to_owned(), length.as_millis().to_string());
    }
    let name = reason_to_wire(problem.reason).as_str_name();
    let mut details = ErrorDetails::new();
    details.set_error_info(name.strip_prefix("REASON_").unwrap_or(name), "leasehold", metadata);
    if let Some(field) = problem.field {
        details.add_bad_request_violation(field, problem.message.clone());
    }
    if problem.retry_after.is_some() {
        details.set_retry_info(problem.retry_after);
    }
    Status::with_error_details(code(problem.reason), problem.message, details)
}

/// Returns the error of a read for an error of the store.
pub(super) fn store_problem(error: lease::Error) -> RequestError {
    let message = error.to_string();
    match error {
        lease::Error::Unavailable { retry_after, .. } => {
            RequestError { retry_after, ..RequestError::new(Reason::StoreUnavailable, message) }
        }
        lease::Error::Recovering { remaining } => RequestError {
            retry_after: Some(remaining),
            ..RequestError::new(Reason::Recovering, message)
        },
        lease::Error::DataLoss { .. } => RequestError::new(Reason::DataLoss, message),
    }
}

/// Returns the status for an error of the store.
pub(super) fn store_status(error: lease::Error) -> Status {
    status(store_problem(error))
}

/// Returns the status for a message that can't be decoded.
pub(super) fn unreadable(error: Status) -> Status {
    match error.code() {
        Code::OutOfRange => status(RequestError::invalid(
            "message",
            format_args!(
                "is too large; the maximum is {} bytes ({})",
                super::MAX_REQUEST_BYTES,
                error.message()
            ),
        )),
        Code::Internal if error.message().contains("decode") => status(RequestError::invalid(
            "message",
            format_args!("can't be decoded: {}", error.message()),
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_protocol::{reason_from_wire, v1};

    use super::*;

    #[test]
    fn every_wire_reason_has_status_code() {
        let reasons = (1..).map_while(|number| v1::Reason::try_from(number).ok());
        let unknown: Vec<_> =
            reasons.filter(|reason| code(reason_from_wire(*reason)) == Code::Unknown).collect();
        assert_eq!(unknown, []);
    }
}

//! Exit codes, and failures as text or JSON.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use leasehold_client::{Error, Holder, Operator, Reason};
use serde_json::{Map, Value, json};

use super::{
    output::{
        Output, WriteError, holder_json, lock_name, millis, printable, quoted, short_duration,
    },
    palette::Palette,
    times,
};
use crate::config::ConfigErrors;

/// Failure without a specific code.
pub(super) const FAILED: u8 = 1;
/// The result is known only to a daemon that could not be reached.
pub(super) const UNKNOWN: u8 = 2;
/// Usage error (EX_USAGE).
pub(super) const USAGE: u8 = 64;
/// Invalid name, TTL or other value (EX_DATAERR).
pub(super) const INVALID: u8 = 65;
/// Daemon unreachable or unable to serve the request (EX_UNAVAILABLE).
pub(super) const UNAVAILABLE: u8 = 69;
/// Lock lost while the command ran (EX_CANTCREAT).
pub(super) const LOST: u8 = 73;
/// Lock not granted in time (EX_TEMPFAIL).
pub(super) const NOT_GRANTED: u8 = 75;
/// Invalid configuration (EX_CONFIG).
pub(super) const CONFIG: u8 = 78;
/// Command found but not executable, as in shells.
pub(super) const CANNOT_RUN: u8 = 126;
/// Command not found, as in shells.
pub(super) const NOT_FOUND: u8 = 127;

/// Premature end of a command.
#[derive(Debug)]
pub(super) enum Failure {
    /// The reader of standard output has closed the pipe, as in
    /// `leasehold ls | head`. Exits with 0.
    ReaderGone,
    /// Error that is reported on standard error.
    Error(Report),
}

/// Error for standard error, as text or JSON.
#[derive(Debug)]
pub(super) struct Report {
    code: u8,
    kind: &'static str,
    message: String,
    details: Map<String, Value>,
}

impl Failure {
    /// Creates an error without details.
    pub(super) fn new(code: u8, kind: &'static str, message: impl fmt::Display) -> Self {
        Self::with(code, kind, message, Map::new())
    }

    /// Creates an error with further JSON keys.
    pub(super) fn with(
        code: u8,
        kind: &'static str,
        message: impl fmt::Display,
        details: Map<String, Value>,
    ) -> Self {
        Self::Error(Report { code, kind, message: message.to_string(), details })
    }

    /// Prints the error and returns the exit code.
    pub(super) fn report(self, output: Output) -> ExitCode {
        match self {
            Self::ReaderGone => ExitCode::SUCCESS,
            Self::Error(report) => {
                // A failed write can't be reported anywhere else.
                let palette = Palette::stderr(output);
                let _ = writeln!(io::stderr(), "{}", report.text(output, palette));
                ExitCode::from(report.code)
            }
        }
    }
}

impl Report {
    fn text(&self, output: Output, palette: Palette) -> String {
        match output {
            Output::Text => {
                format!("{} {}", palette.bad("leasehold:"), printable(&self.message))
            }
            Output::Json => {
                let mut error = self.details.clone();
                error.insert("kind".to_owned(), self.kind.into());
                error.insert("message".to_owned(), self.message.as_str().into());
                json!({ "error": error }).to_string()
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(FAILED, "io", error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ReaderGone => Self::ReaderGone,
            WriteError::Failed(_) => Self::new(FAILED, "io", error),
        }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        let details = details([("errors", Some(json!(errors.all())))]);
        Self::with(CONFIG, "configuration", errors, details)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::refused(error, "", None)
    }
}

impl Failure {
    /// Converts the error of a request about a lock in `namespace`. `waited` is the
    /// wait limit of an acquire.
    pub(super) fn refused(error: Error, namespace: &str, waited: Option<Duration>) -> Self {
        let message = error.to_string();
        match error {
            Error::NotGranted { lock, reason, holder, held_for, retry_after, .. } => {
                let name = lock_name(namespace, &lock);
                let held = (holder.as_deref(), held_for);
                let message = not_granted(&message, &name, reason, held, waited);
                let details = details([
                    ("lock", Some(lock.into())),
                    ("reason", Some(reason_name(reason).into())),
                    ("holder", holder.as_deref().map(holder_json)),
                    ("held_for_ms", held_for.map(millis)),
                    ("retry_after_ms", retry_after.map(millis)),
                ]);
                Self::with(NOT_GRANTED, "not_granted", message, details)
            }
            Error::Lost { lock, reason, .. } => Self::lost(&lock, Some(reason), None, message),
            Error::Unavailable { retry_after, .. } => {
                let details = details([("retry_after_ms", retry_after.map(millis))]);
                Self::with(UNAVAILABLE, "unavailable", message, details)
            }
            Error::Invalid { field, .. } => {
                let message = by_flag(&field, message);
                let details = details([("field", Some(field.into()))]);
                Self::with(INVALID, "invalid", message, details)
            }
            Error::NeedsOperator { lock, .. } => {
                let details = details([("lock", Some(lock.into()))]);
                Self::with(FAILED, "needs_operator", message, details)
            }
            Error::Incompatible { .. } => Self::new(FAILED, "incompatible", message),
            _ => Self::new(FAILED, "other", message),
        }
    }
}

impl Failure {
    /// Creates the error for a lost lock.
    pub(super) fn lost(
        lock: &str,
        reason: Option<Reason>,
        operator: Option<&Operator>,
        message: impl fmt::Display,
    ) -> Self {
        let operator =
            operator.map(|Operator { by, reason }| json!({ "by": by, "reason": reason }));
        let details = details([
            ("lock", Some(lock.into())),
            ("reason", reason.map(|reason| reason_name(reason).into())),
            ("operator", operator),
        ]);
        Self::with(LOST, "lost", message, details)
    }
}

/// Message of a refused acquire, with the local time of the current grant. The
/// daemon can't format that time, because it does not know the reader's time zone.
fn not_granted(
    message: &str,
    name: &str,
    reason: Reason,
    (holder, held_for): (Option<&Holder>, Option<Duration>),
    waited: Option<Duration>,
) -> String {
    // Refusals without a holder have another cause.
    let Some(holder) = holder.map(quoted) else { return message.to_owned() };
    match reason {
        Reason::Held => {
            let since = held_for.map(|held_for| format!(" {}", times::since(held_for)));
            let since = since.unwrap_or_default();
            format!("lock {name} is held by {holder}{since}; use --wait to wait for it")
        }
        Reason::TimedOut => {
            let start = held_for.and_then(times::start);
            let since = start.map(|start| format!(" since {start}")).unwrap_or_default();
            let after = waited.map(|waited| format!(" after {}", short_duration(waited)));
            let after = after.unwrap_or_default();
            format!("timed out{after} waiting for lock {name}, held by {holder}{since}")
        }
        _ => message.to_owned(),
    }
}

/// Fields of requests, with the flags and arguments that set them. `ls` and `watch` set
/// the prefix differently.
const FLAGS: [(&str, &str); 11] = [
    ("endpoint", "--endpoint"),
    ("lease_duration_ms", "--lease-duration"),
    ("max_hold_time_ms", "--max-hold-time"),
    ("name", "NAME"),
    ("namespace", "--namespace"),
    ("prefix", "the prefix"),
    ("reason", "--reason"),
    ("ttl_ms", "--ttl"),
    ("value", "--value"),
    ("wait_ms", "--wait"),
    ("timeout_ms", "--timeout"),
];

/// Parameters of the client library, with the beginning of its messages and the flags
/// that set them.
const PARAMETERS: [(&str, &str, &str); 3] = [
    ("ttl", "session TTL ", "--ttl"),
    ("timeout", "step-down timeout ", "--timeout"),
    ("value", "the value ", "--value"),
];

/// Replaces a field of the protocol, or a parameter of the client library, by its flag
/// or argument.
fn by_flag(field: &str, message: String) -> String {
    let parameter = PARAMETERS.iter().find(|(known, ..)| *known == field);
    if let Some((_, start, flag)) = parameter
        && let Some(problem) = message.strip_prefix(start)
    {
        return format!("{flag} {problem}");
    }
    let flag = FLAGS.iter().find(|(known, _)| *known == field).map(|(_, flag)| flag);
    match (flag, message.strip_prefix(field).and_then(|rest| rest.strip_prefix(": "))) {
        (Some(flag), Some(problem)) => format!("{flag} {problem}"),
        _ => message,
    }
}

/// Message of the innermost error, which is the most specific. An error of the operating
/// system is reduced to its kind, as in "connection refused".
pub(super) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match cause.downcast_ref::<io::Error>() {
        Some(error) if error.get_ref().is_none() => error.kind().to_string(),
        _ => cause.to_string(),
    }
}

/// Collects the known details.
fn details<const N: usize>(entries: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let known = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    known.collect()
}

/// Name of a reason in the protocol. Programs rely on these names.
fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Held => "held",
        Reason::TimedOut => "timed_out",
        Reason::Canceled => "canceled",
        Reason::Invalid => "invalid",
        Reason::UnknownHandle => "unknown_handle",
        Reason::ShuttingDown => "shutting_down",
        Reason::StoreUnavailable => "store_unavailable",
        Reason::Recovering => "recovering",
        Reason::DataLoss => "data_loss",
        Reason::Limit => "limit",
        Reason::Expired => "expired",
        Reason::Broken => "broken",
        Reason::MaxHoldTime => "max_hold_time",
        Reason::LeaseLost => "lease_lost",
        Reason::UnknownSession => "unknown_session",
        Reason::ProtocolVersion => "protocol_version",
        Reason::Protocol => "protocol",
        Reason::StepDown => "step_down",
        Reason::NoProgress => "no_progress",
        Reason::SteppedDown => "stepped_down",
        Reason::ResumedElsewhere => "resumed_elsewhere",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(error: Error) -> Report {
        match Failure::from(error) {
            Failure::Error(report) => report,
            Failure::ReaderGone => panic!("not reported"),
        }
    }

    #[test]
    fn every_wire_reason_has_name() {
        use leasehold_protocol::{reason_from_wire, v1};

        let reasons = (1..).map_while(|number| v1::Reason::try_from(number).ok());
        let unnamed: Vec<_> =
            reasons.filter(|reason| reason_name(reason_from_wire(*reason)) == "unknown").collect();
        assert_eq!(unnamed, []);
    }

    #[test]
    fn each_error_has_exit_code() {
        let message = || "message".to_owned();
        let lock = || "orders".to_owned();
        let unavailable = Error::Unavailable { message: message(), retry_after: None };
        assert_eq!(report(unavailable).code, 69);
        let lost = Error::Lost { lock: lock(), reason: Reason::Broken, message: message() };
        assert_eq!(report(lost).code, 73);
        let invalid = Error::Invalid { field: "name".to_owned(), message: message() };
        assert_eq!(report(invalid).code, 65);
        let operator = Error::NeedsOperator { lock: lock(), message: message() };
        assert_eq!(report(operator).code, 1);
        assert_eq!(report(Error::Incompatible { message: message() }).code, 1);
    }

    #[test]
    fn refusal_names_holder_in_text_and_json() {
        let holder = Holder { client: "billing".to_owned(), ..Holder::default() };
        let refused = report(Error::NotGranted {
            lock: "orders".to_owned(),
            reason: Reason::TimedOut,
            message: "timed out after 3s".to_owned(),
            holder: Some(Box::new(holder)),
            held_for: Some(Duration::from_secs(12)),
            held_by_same_session: false,
            retry_after: None,
        });
        assert_eq!(refused.code, 75);
        let text = refused.text(Output::Text, Palette::PLAIN);
        let begin = "leasehold: timed out waiting for lock \"orders\", held by \"billing\" since ";
        assert!(text.starts_with(begin), "{text}");
        let json = refused.text(Output::Json, Palette::PLAIN);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["error"]["kind"], "not_granted");
        assert_eq!(json["error"]["lock"], "orders");
        assert_eq!(json["error"]["reason"], "timed_out");
        assert_eq!(json["error"]["holder"]["client"], "billing");
        assert_eq!(json["error"]["held_for_ms"], 12_000);
        assert!(json["error"].get("retry_after_ms").is_none());
    }

    #[test]
    fn invalid_values_are_named_by_flag() {
        let problem = "5s is out of range: use whole seconds from 15s to 60s";
        let invalid = |field: &str, message: String| {
            let error = Error::Invalid { field: field.to_owned(), message };
            report(error).text(Output::Text, Palette::PLAIN)
        };
        assert_eq!(
            invalid("lease_duration_ms", format!("lease_duration_ms: {problem}")),
            format!("leasehold: --lease-duration {problem}")
        );
        assert_eq!(
            invalid("ttl", "session TTL 90s is out of range: use 1s to 60s".to_owned()),
            "leasehold: --ttl 90s is out of range: use 1s to 60s"
        );
        assert_eq!(
            invalid("value", "the value has 5000 bytes; the maximum is 4096".to_owned()),
            "leasehold: --value has 5000 bytes; the maximum is 4096"
        );
        assert_eq!(invalid("name", "name: is empty".to_owned()), "leasehold: NAME is empty");
        assert_eq!(invalid("name", "invalid lock name".to_owned()), "leasehold: invalid lock name");
    }

    #[test]
    fn broken_pipe_is_ignored_on_stdout_only() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(WriteError::from(gone())), Failure::ReaderGone));
        assert!(matches!(Failure::from(gone()), Failure::Error(Report { code: FAILED, .. })));
    }
}

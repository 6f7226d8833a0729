//! Exit codes, and failures told to people or programs.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use leasehold_client::{Error, Holder, Operator, Reason};
use serde_json::{Map, Value, json};

use super::{
    output::{Output, Unwritten, holder_json, length, lock_name, millis, printable, quoted},
    palette::Palette,
    times,
};
use crate::config::ConfigErrors;

/// Something went wrong that has no code of its own.
pub(super) const FAILED: u8 = 1;
/// The answer is not known to the daemons that could be asked.
pub(super) const UNKNOWN: u8 = 2;
/// The command line is wrong (EX_USAGE).
pub(super) const USAGE: u8 = 64;
/// A name, a ttl or the like is not acceptable (EX_DATAERR).
pub(super) const INVALID: u8 = 65;
/// The daemon can't be reached or can't serve now (EX_UNAVAILABLE).
pub(super) const UNAVAILABLE: u8 = 69;
/// The lock was lost while the command ran (EX_CANTCREAT).
pub(super) const LOST: u8 = 73;
/// The lock was not granted in time (EX_TEMPFAIL).
pub(super) const NOT_GRANTED: u8 = 75;
/// The configuration has errors (EX_CONFIG).
pub(super) const CONFIG: u8 = 78;
/// The command was found but can't be run, as in shells.
pub(super) const CANNOT_RUN: u8 = 126;
/// The command was not found, as in shells.
pub(super) const NOT_FOUND: u8 = 127;

/// Why the program ends without having done what was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody reads our output any more, as in `leasehold ls | head`. That is
    /// no error.
    ReaderGone,
    /// To be told.
    Told(Report),
}

/// A failure for people and for programs.
#[derive(Debug)]
pub(super) struct Report {
    code: u8,
    kind: &'static str,
    message: String,
    details: Map<String, Value>,
}

impl Failure {
    /// A failure without details.
    pub(super) fn new(code: u8, kind: &'static str, message: impl fmt::Display) -> Self {
        Self::with(code, kind, message, Map::new())
    }

    /// A failure with what programs may want to know of it.
    pub(super) fn with(
        code: u8,
        kind: &'static str,
        message: impl fmt::Display,
        details: Map<String, Value>,
    ) -> Self {
        Self::Told(Report { code, kind, message: message.to_string(), details })
    }

    /// Tells it, and says how to end.
    pub(super) fn report(self, output: Output) -> ExitCode {
        match self {
            Self::ReaderGone => ExitCode::SUCCESS,
            Self::Told(report) => {
                // There is nowhere left to complain to.
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

impl From<Unwritten> for Failure {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::ReaderGone => Self::ReaderGone,
            Unwritten::Failed(_) => Self::new(FAILED, "io", unwritten),
        }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        let details = details([("mistakes", Some(json!(errors.all())))]);
        Self::with(CONFIG, "configuration", errors, details)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::refused(error, "", None)
    }
}

impl Failure {
    /// A failed request, about a lock of this namespace, that waited for this long.
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
    /// The lock was lost.
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

/// The message of an acquire that was not granted, with the local time since which
/// the lock is held: the daemon does not know the reader's time zone.
fn not_granted(
    message: &str,
    name: &str,
    reason: Reason,
    (holder, held_for): (Option<&Holder>, Option<Duration>),
    waited: Option<Duration>,
) -> String {
    // Without a holder, the message has another cause.
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
            let after = waited.map(|waited| format!(" after {}", length(waited)));
            let after = after.unwrap_or_default();
            format!("timed out{after} waiting for lock {name}, held by {holder}{since}")
        }
        _ => message.to_owned(),
    }
}

/// Flags that set a field of a request.
const FLAGS: [(&str, &str); 10] = [
    ("endpoint", "--endpoint"),
    ("lease_duration_ms", "--lease-duration"),
    ("max_hold_time_ms", "--max-hold-time"),
    ("namespace", "--namespace"),
    ("prefix", "PREFIX"),
    ("reason", "--reason"),
    ("ttl_ms", "--ttl"),
    ("value", "--value"),
    ("wait_ms", "--wait"),
    ("timeout_ms", "--timeout"),
];

/// Names the flag instead of the field of the protocol.
fn by_flag(field: &str, message: String) -> String {
    let flag = FLAGS.iter().find(|(known, _)| *known == field).map(|(_, flag)| flag);
    match (flag, message.strip_prefix(field).and_then(|rest| rest.strip_prefix(": "))) {
        (Some(flag), Some(problem)) => format!("{flag} {problem}"),
        _ => message,
    }
}

/// Leaves out what is not known.
fn details<const N: usize>(entries: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let known = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    known.collect()
}

/// The names that the protocol has for its reasons. They are part of the
/// output that programs rely on.
fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Held => "held",
        Reason::TimedOut => "timed_out",
        Reason::Cancelled => "cancelled",
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
            Failure::Told(report) => report,
            Failure::ReaderGone => panic!("not told"),
        }
    }

    #[test]
    fn each_error_has_its_code() {
        let message = || "why".to_owned();
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
    fn a_refusal_names_the_holder_to_people_and_programs() {
        let holder = Holder { client: "billing".to_owned(), ..Holder::default() };
        let refused = report(Error::NotGranted {
            lock: "orders".to_owned(),
            reason: Reason::TimedOut,
            message: "not free within 3s".to_owned(),
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
        assert_eq!(invalid("name", "invalid lock name".to_owned()), "leasehold: invalid lock name");
    }

    #[test]
    fn only_the_reader_of_our_output_may_go_away() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(Unwritten::from(gone())), Failure::ReaderGone));
        assert!(matches!(Failure::from(gone()), Failure::Told(Report { code: FAILED, .. })));
    }
}

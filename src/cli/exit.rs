//! Exit codes, and failures told to people or programs.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use leasehold_client::{Error, Holder, Reason};
use serde_json::{Map, Value, json};

use super::output::{Output, Unwritten, holder_json, millis, printable};
use crate::config::Mistakes;

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
/// The configuration has mistakes (EX_CONFIG).
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
                let _ = writeln!(io::stderr(), "{}", report.text(output));
                ExitCode::from(report.code)
            }
        }
    }
}

impl Report {
    fn text(&self, output: Output) -> String {
        match output {
            Output::Text => format!("leasehold: {}", printable(&self.message)),
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

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        let details = details([("mistakes", Some(json!(mistakes.all())))]);
        Self::with(CONFIG, "configuration", mistakes, details)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::NotGranted { lock, reason, holder, held_for, retry_after, .. } => {
                let message = not_granted(&message, holder.as_deref(), held_for);
                let details = details([
                    ("lock", Some(lock.into())),
                    ("reason", Some(reason_name(reason).into())),
                    ("holder", holder.as_deref().map(holder_json)),
                    ("held_for_ms", held_for.map(millis)),
                    ("retry_after_ms", retry_after.map(millis)),
                ]);
                Self::with(NOT_GRANTED, "not_granted", message, details)
            }
            Error::Lost { lock, reason, .. } => Self::lost(&lock, Some(reason), message),
            Error::Unavailable { retry_after, .. } => {
                let details = details([("retry_after_ms", retry_after.map(millis))]);
                Self::with(UNAVAILABLE, "unavailable", message, details)
            }
            Error::Invalid { field, .. } => {
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
    pub(super) fn lost(lock: &str, reason: Option<Reason>, message: impl fmt::Display) -> Self {
        let details = details([
            ("lock", Some(lock.into())),
            ("reason", reason.map(|reason| reason_name(reason).into())),
        ]);
        Self::with(LOST, "lost", message, details)
    }
}

/// The message, and who holds the lock unless it says so itself.
fn not_granted(message: &str, holder: Option<&Holder>, held_for: Option<Duration>) -> String {
    match holder {
        Some(holder) if !message.contains(&holder.client) => {
            let held_for = held_for.map(super::output::length);
            let held_for = held_for.map(|length| format!(" for {length}")).unwrap_or_default();
            format!("{message} (held by {holder}{held_for})")
        }
        _ => message.to_owned(),
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
        Reason::HeldTooLong => "held_too_long",
        Reason::LeaseLost => "lease_lost",
        Reason::UnknownSession => "unknown_session",
        Reason::ProtocolVersion => "protocol_version",
        Reason::Protocol => "protocol",
        Reason::StepDown => "step_down",
        Reason::NoProgress => "no_progress",
        Reason::HandedOver => "handed_over",
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
        assert_eq!(
            refused.text(Output::Text),
            "leasehold: not free within 3s (held by billing for 12s)"
        );
        let json: Value = serde_json::from_str(&refused.text(Output::Json)).unwrap();
        assert_eq!(json["error"]["kind"], "not_granted");
        assert_eq!(json["error"]["lock"], "orders");
        assert_eq!(json["error"]["reason"], "timed_out");
        assert_eq!(json["error"]["holder"]["client"], "billing");
        assert_eq!(json["error"]["held_for_ms"], 12_000);
        assert!(json["error"].get("retry_after_ms").is_none());
    }

    #[test]
    fn only_the_reader_of_our_output_may_go_away() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(Unwritten::from(gone())), Failure::ReaderGone));
        assert!(matches!(Failure::from(gone()), Failure::Told(Report { code: FAILED, .. })));
    }
}

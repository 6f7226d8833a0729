//! How results are written: for people, or one JSON object per line.

use std::{
    fmt,
    io::{self, Write},
    time::Duration,
};

use clap::ValueEnum;
use leasehold_client::Holder;
use serde_json::{Value, json};
use thiserror::Error;

use super::palette::Palette;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Human-readable
    Text,
    /// One JSON object per line
    Json,
}

impl Output {
    /// As `--output` has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// A note, as a line of standard error.
    pub(super) fn noted(self, text: impl fmt::Display, palette: Palette) -> String {
        let text = text.to_string();
        match self {
            Self::Text => {
                let prefix = palette.bold("leasehold:");
                format!("{prefix} {}\n", printable(&text))
            }
            Self::Json => format!("{}\n", json!({ "note": { "message": text } })),
        }
    }

    /// Tells something on standard error. A failure to do so changes nothing.
    pub(super) fn note(self, text: impl fmt::Display) {
        let _ = io::stderr().write_all(self.noted(text, Palette::stderr(self)).as_bytes());
    }
}

/// Why something is not on standard output. Only here does a broken pipe mean
/// that the reader has seen enough.
#[derive(Debug, Error)]
pub(super) enum Unwritten {
    /// Nobody reads it any more.
    #[error("nobody reads standard output any more")]
    ReaderGone,
    /// It could not be written.
    #[error("can't write to standard output: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Failed(error),
        }
    }
}

/// Writes to standard output, at once, so that a reader in a pipeline is never
/// behind.
pub(super) fn write(bytes: &[u8]) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a line to standard output.
pub(super) fn line(text: impl fmt::Display) -> Result<(), Unwritten> {
    write(format!("{text}\n").as_bytes())
}

/// Writes a line to standard output for whoever still reads it: what happens
/// next does not depend on that.
pub(super) fn offer(text: impl fmt::Display) -> Result<(), Unwritten> {
    match line(text) {
        Err(Unwritten::ReaderGone) => Ok(()),
        written => written,
    }
}

/// Tells people something on standard error.
pub(super) fn note(text: impl fmt::Display) {
    Output::Text.note(text);
}

/// Text from elsewhere, without anything that a terminal would obey.
pub(super) fn printable(text: &str) -> String {
    let safe = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(safe).collect()
}

/// A length of time for people: no finer than it matters.
pub(super) fn length(length: Duration) -> String {
    let rounded = if length < Duration::from_secs(1) {
        Duration::from_millis(millis_of(length))
    } else {
        Duration::from_secs(length.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

/// A length of time for programs.
pub(super) fn millis(length: Duration) -> Value {
    millis_of(length).into()
}

fn millis_of(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// A lock's name in a sentence: quoted, with its namespace unless that is the
/// default one.
pub(super) fn lock_name(namespace: &str, name: &str) -> String {
    match namespace {
        "" | "default" => format!("{name:?}"),
        namespace => format!("{name:?} in namespace {namespace}"),
    }
}

/// A holder in a sentence, with the client's name in quotes: a name may consist
/// of several words.
pub(super) fn quoted(holder: &Holder) -> String {
    let text = holder.to_string();
    match text.strip_prefix(holder.client.as_str()) {
        Some(rest) if !holder.client.is_empty() => format!("{:?}{rest}", holder.client),
        _ => text,
    }
}

/// A holder for programs. What is not known is null, so that the keys are
/// always the same.
pub(super) fn holder_json(holder: &Holder) -> Value {
    json!({
        "client": holder.client,
        "host": holder.host,
        "pid": holder.pid,
        "pod": holder.pod,
        "labels": holder.labels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_no_finer_than_they_matter() {
        assert_eq!(length(Duration::from_micros(340_900)), "340ms");
        assert_eq!(length(Duration::from_millis(12_999)), "12s");
        assert_eq!(length(Duration::from_secs(3_723)), "1h 2m 3s");
        assert_eq!(length(Duration::ZERO), "0s");
    }

    #[test]
    fn notes_are_lines_for_people_and_objects_for_programs() {
        assert_eq!(Output::Text.noted("may end", Palette::PLAIN), "leasehold: may end\n");
        let line = Output::Json.noted("may\nend", Palette::PLAIN);
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["note"]["message"], "may\nend");
    }

    #[test]
    fn client_name_is_quoted_in_sentences() {
        let client = "leasehold lock: sleep".to_owned();
        let holder = Holder { client, host: "vm".to_owned(), ..Holder::default() };
        assert_eq!(quoted(&holder), "\"leasehold lock: sleep\" on vm");
        assert_eq!(quoted(&Holder::default()), "an unnamed client");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        assert_eq!(printable("a\x1b[2Jb\rc"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}

//! Output of results: human-readable text, or one JSON object per line.

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
    /// Name of the format in `--output`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// Formats a note as a line for standard error.
    pub(super) fn note_line(self, text: impl fmt::Display, palette: Palette) -> String {
        let text = text.to_string();
        match self {
            Self::Text => {
                let prefix = palette.bold("leasehold:");
                format!("{prefix} {}\n", printable(&text))
            }
            Self::Json => format!("{}\n", json!({ "note": { "message": text } })),
        }
    }

    /// Prints a note on standard error. Write errors are ignored.
    pub(super) fn note(self, text: impl fmt::Display) {
        let _ = io::stderr().write_all(self.note_line(text, Palette::stderr(self)).as_bytes());
    }
}

/// Failed write to standard output. A broken pipe has its own variant, because
/// it is no failure of the command.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    /// The reader has closed the pipe.
    #[error("standard output was closed by its reader")]
    ReaderGone,
    /// Any other error.
    #[error("can't write to standard output: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Failed(error),
        }
    }
}

/// Writes to standard output and flushes it, so that a reader in a pipeline gets
/// the output immediately.
pub(super) fn write(bytes: &[u8]) -> Result<(), WriteError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a line to standard output.
pub(super) fn line(text: impl fmt::Display) -> Result<(), WriteError> {
    write(format!("{text}\n").as_bytes())
}

/// Writes a line to standard output. A closed pipe is no error: the command
/// continues without a reader.
pub(super) fn optional_line(text: impl fmt::Display) -> Result<(), WriteError> {
    match line(text) {
        Err(WriteError::ReaderGone) => Ok(()),
        written => written,
    }
}

/// Prints a human-readable note on standard error.
pub(super) fn note(text: impl fmt::Display) {
    Output::Text.note(text);
}

/// Replaces control characters in foreign text, because a terminal would execute
/// them. Line feeds stay.
pub(super) fn printable(text: &str) -> String {
    let safe = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(safe).collect()
}

/// Formats a duration: in milliseconds below 1 s, else in whole seconds.
pub(super) fn short_duration(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(1) {
        Duration::from_millis(millis_of(duration))
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

/// Duration in milliseconds, for JSON.
pub(super) fn millis(duration: Duration) -> Value {
    millis_of(duration).into()
}

fn millis_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Lock name for a sentence: quoted, with its namespace unless that is the default
/// one.
pub(super) fn lock_name(namespace: &str, name: &str) -> String {
    match namespace {
        "" | "default" => format!("{name:?}"),
        namespace => format!("{name:?} in namespace {namespace}"),
    }
}

/// Holder for a sentence. The client's name is quoted, because it may consist of
/// several words.
pub(super) fn quoted(holder: &Holder) -> String {
    let text = holder.to_string();
    match text.strip_prefix(holder.client.as_str()) {
        Some(rest) if !holder.client.is_empty() => format!("{:?}{rest}", holder.client),
        _ => text,
    }
}

/// Holder as JSON. Unknown values are null, so that all keys are always present.
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
    fn durations_are_rounded() {
        assert_eq!(short_duration(Duration::from_micros(340_900)), "340ms");
        assert_eq!(short_duration(Duration::from_millis(12_999)), "12s");
        assert_eq!(short_duration(Duration::from_secs(3_723)), "1h 2m 3s");
        assert_eq!(short_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn notes_are_text_or_json_lines() {
        assert_eq!(Output::Text.note_line("may end", Palette::PLAIN), "leasehold: may end\n");
        let line = Output::Json.note_line("may\nend", Palette::PLAIN);
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
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\x1b[2Jb\rc"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}

//! How results are written: for people, or one JSON object per line.

use std::{
    fmt,
    io::{self, Write},
    time::Duration,
};

use clap::ValueEnum;
use leasehold_client::Holder;
use serde_json::{Value, json};

/// Who reads the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// People.
    Text,
    /// Programs: one JSON object per line.
    Json,
}

/// Writes a line to standard output, at once, so that a reader in a pipeline
/// is never behind.
pub(super) fn line(text: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Tells people something on standard error. A failure to do so changes
/// nothing.
pub(super) fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "leasehold: {}", printable(&text.to_string()));
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
    fn nothing_that_a_terminal_obeys_gets_through() {
        assert_eq!(printable("a\x1b[2Jb\rc"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}

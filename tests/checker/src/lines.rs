//! File format of histories: JSON lines, first the bounds, then one entry per line.

use std::io::{self, BufRead, Write};

use crate::{Bounds, Entry, History};

/// Error of [`read`].
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input can't be read.
    #[error("can't read the history: {0}")]
    Io(#[from] io::Error),
    /// A line has an invalid format.
    #[error("line {line} is not {expected}: {why}")]
    Line {
        /// Line number, counted from 1.
        line: usize,
        /// Expected content: the bounds or an entry.
        expected: &'static str,
        /// Error of the parser.
        why: serde_json::Error,
    },
    /// The input has no bounds.
    #[error("the history is empty: the first line must contain the bounds, `{{}}` for none")]
    Empty,
}

/// Reads a history that [`write()`] wrote. Skips empty lines.
pub fn read(from: impl BufRead) -> Result<History, ReadError> {
    let mut bounds = None;
    let mut entries = Vec::new();
    for (number, line) in from.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let bad = |expected| move |why| ReadError::Line { line: number + 1, expected, why };
        match bounds {
            None => bounds = Some(serde_json::from_str::<Bounds>(&line).map_err(bad("bounds"))?),
            Some(_) => {
                entries.push(serde_json::from_str::<Entry>(&line).map_err(bad("an entry"))?);
            }
        }
    }
    Ok(History { bounds: bounds.ok_or(ReadError::Empty)?, entries })
}

/// Writes a history, one entry per line.
pub fn write(history: &History, mut to: impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut to, &history.bounds)?;
    writeln!(to)?;
    for entry in &history.entries {
        serde_json::to_writer(&mut to, entry)?;
        writeln!(to)?;
    }
    to.flush()
}

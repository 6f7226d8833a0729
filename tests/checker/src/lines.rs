//! Histories as files: JSON lines, the bounds first, then one entry per line.

use std::io::{self, BufRead, Write};

use crate::{Bounds, Entry, History};

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It could not be read at all.
    #[error("the history can't be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("line {line} is not {expected}: {why}")]
    Line {
        /// Which line, counted from 1.
        line: usize,
        /// What should be there.
        expected: &'static str,
        /// What the parser says.
        why: serde_json::Error,
    },
    /// There is nothing in it, not even bounds.
    #[error("the history is empty: its first line should hold the bounds, `{{}}` for none")]
    Empty,
}

/// Reads a history that [`write()`] wrote. Empty lines are passed over.
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

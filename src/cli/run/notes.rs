//! Notes of `lock` and `elect` on standard error.
//!
//! A terminal or a pipe may block for any time, and must not delay keep-alives. A
//! separate thread therefore writes, and notes that do not fit into its queue are
//! dropped.

use std::{
    fmt,
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

use crate::cli::{output::Output, palette::Palette, process};

/// Maximum number of unwritten entries.
const QUEUE_CAPACITY: usize = 64;

/// Maximum time to wait for queued entries to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Writer of standard error that never blocks its caller.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Notes {
    output: Output,
    queue: SyncSender<Entry>,
}

#[derive(Debug)]
enum Entry {
    Text(String),
    /// Notified when all earlier entries have been written.
    Flush(oneshot::Sender<()>),
}

impl Notes {
    /// Starts the thread. It is not joined, and ends with the process.
    pub(in crate::cli) fn start(output: Output) -> io::Result<Self> {
        let (queue, entries) = sync_channel(QUEUE_CAPACITY);
        thread::Builder::new().name("notes".to_owned()).spawn(move || write_all(&entries))?;
        Ok(Self { output, queue })
    }

    /// Writes a note.
    pub(in crate::cli) fn note(&self, text: impl fmt::Display) {
        self.write(self.output.note_line(text, Palette::stderr(self.output)));
    }

    /// Writes `text` unchanged.
    pub(super) fn write(&self, text: String) {
        let _ = self.queue.try_send(Entry::Text(text));
    }

    /// Waits until all entries are written, at most [`FLUSH_TIMEOUT`].
    pub(in crate::cli) async fn flush(&self) {
        let (sender, written) = oneshot::channel();
        if self.queue.try_send(Entry::Flush(sender)).is_ok() {
            tokio::select! {
                _ = written => {}
                () = leasehold_runtime::sleep(FLUSH_TIMEOUT) => {}
            }
        }
    }
}

fn write_all(entries: &Receiver<Entry>) {
    // Includes SIGTTOU, which stops a background process that writes to a terminal.
    let _ = process::block_signals();
    for entry in entries {
        match entry {
            // Write errors are ignored.
            Entry::Text(text) => drop(io::stderr().write_all(text.as_bytes())),
            Entry::Flush(sender) => drop(sender.send(())),
        }
    }
}

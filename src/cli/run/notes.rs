//! What `lock` and `elect` tell on standard error while they wait or hold.
//!
//! A terminal or a pipe may take nothing for as long as it likes. The grant is
//! kept alive meanwhile, so another thread writes, and what does not fit into
//! its queue is dropped.

use std::{
    fmt,
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

use crate::cli::{output::Output, palette::Palette, process};

/// As much as may wait to be written.
const LONGEST_QUEUE: usize = 64;

/// How long to wait for what has been told to be written.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// Standard error, which never makes us wait.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Notes {
    output: Output,
    queue: SyncSender<Entry>,
}

#[derive(Debug)]
enum Entry {
    Text(String),
    /// Everything before this has been written.
    Mark(oneshot::Sender<()>),
}

impl Notes {
    /// Begins to write. The thread ends with the process: nothing waits for it.
    pub(in crate::cli) fn begin(output: Output) -> io::Result<Self> {
        let (queue, entries) = sync_channel(LONGEST_QUEUE);
        thread::Builder::new().name("notes".to_owned()).spawn(move || write_all(&entries))?;
        Ok(Self { output, queue })
    }

    /// Tells something.
    pub(in crate::cli) fn tell(&self, text: impl fmt::Display) {
        self.write(self.output.noted(text, Palette::stderr(self.output)));
    }

    /// Writes `text` as it is.
    pub(super) fn write(&self, text: String) {
        let _ = self.queue.try_send(Entry::Text(text));
    }

    /// Waits until everything is written, but not for long.
    pub(in crate::cli) async fn written(&self) {
        let (sender, written) = oneshot::channel();
        if self.queue.try_send(Entry::Mark(sender)).is_ok() {
            tokio::select! {
                _ = written => {}
                () = leasehold_runtime::sleep(WRITE_TIMEOUT) => {}
            }
        }
    }
}

fn write_all(entries: &Receiver<Entry>) {
    // Also keeps a terminal from stopping us for writing in the background.
    let _ = process::block_signals();
    for entry in entries {
        match entry {
            // A note that can't be written changes nothing.
            Entry::Text(text) => drop(io::stderr().write_all(text.as_bytes())),
            Entry::Mark(sender) => drop(sender.send(())),
        }
    }
}

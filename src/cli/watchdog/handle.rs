//! Handle with which `lock` and `elect` start and control the watchdog.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use tokio::net::unix::pipe::{self, Sender};

use super::Message;
use crate::cli::{
    output::Output, process, process::ChildState, process::Group, process::TrackedChild,
};
use leasehold_time::{ClockPair, Moment};

/// Running watchdog.
#[derive(Debug)]
pub(in crate::cli) struct Watchdog {
    /// `None` after the process has ended.
    child: Option<TrackedChild>,
    pipe: Sender,
    sent_kill_at: Option<Moment>,
}

impl Watchdog {
    /// Starts the watchdog in its own process group, so that signals to the group of
    /// this process or of the command do not reach it. It writes its note, a sentence
    /// about `subject`, to `notes`.
    pub(in crate::cli) async fn start(
        output: Output,
        subject: &str,
        notes: Stdio,
    ) -> io::Result<Self> {
        let (sender, receiver) = pipe::pipe()?;
        let child = Command::new(process::this_program()?)
            .arg0("leasehold")
            .args(["watchdog", "--output", output.name(), "--subject", subject])
            .current_dir("/")
            .stdin(Stdio::from(receiver.into_blocking_fd()?))
            .stdout(Stdio::null())
            .stderr(notes)
            .process_group(0)
            .spawn()?;
        let child = Some(TrackedChild::new(child.id()));
        // `try_write` works only after the runtime has seen that the pipe is writable.
        sender.writable().await?;
        Ok(Self { child, pipe: sender, sent_kill_at: None })
    }

    /// Sends the group to watch. The time of the kill must have been sent before.
    pub(in crate::cli) fn watch_over(&self, group: Group) -> io::Result<()> {
        self.send(Message::Group(group.id()))
    }

    /// Sends the time at which to kill the group, if it has changed. `known` are
    /// both clocks, read before that time was computed. If the message can't be
    /// sent now, the watchdog has an earlier time, and the next call sends it again.
    pub(in crate::cli) fn kill_at(&mut self, at: Moment, known: ClockPair) -> io::Result<()> {
        if self.sent_kill_at != Some(at) {
            self.send(Message::KillAt { at, known })?;
            self.sent_kill_at = Some(at);
        }
        Ok(())
    }

    /// Ends the watchdog, without waiting for its exit.
    pub(in crate::cli) fn finish(self) {
        // If the message is not sent, the watchdog ends when the pipe is closed and the
        // group is empty.
        let _ = self.send(Message::Finish);
    }

    /// Returns whether the process has ended since the last call.
    pub(in crate::cli) fn take_end(&mut self) -> io::Result<bool> {
        let Some(child) = &self.child else { return Ok(false) };
        let state = process::poll_child(child.id())?;
        let ended = matches!(state, ChildState::Exited(_) | ChildState::Killed(_));
        self.child.take_if(|_| ended);
        Ok(ended)
    }

    fn send(&self, message: Message) -> io::Result<()> {
        // Writes of at most `PIPE_BUF` bytes are atomic.
        self.pipe.try_write(message.to_string().as_bytes()).map(|_| ())
    }
}

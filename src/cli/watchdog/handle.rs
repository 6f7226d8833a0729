//! The watchdog, seen from `lock`.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use tokio::net::unix::pipe::{self, Sender};

use super::Message;
use crate::cli::{output::Output, process, process::Awaited, process::ChildState, process::Group};
use leasehold_time::{ClockPair, Moment};

/// A running watchdog.
#[derive(Debug)]
pub(in crate::cli) struct Watchdog {
    /// Until it has ended.
    child: Option<Awaited>,
    pipe: Sender,
    told: Option<Moment>,
}

impl Watchdog {
    /// Starts one, in a process group of its own: signals that are meant for
    /// this group or the command's do not reach it. What it does goes to
    /// `notes`.
    pub(in crate::cli) async fn start(output: Output, notes: Stdio) -> io::Result<Self> {
        let (sender, receiver) = pipe::pipe()?;
        let child = Command::new(process::this_program()?)
            .arg0("leasehold")
            .args(["keeper", "--output", output.name()])
            .current_dir("/")
            .stdin(Stdio::from(receiver.into_blocking_fd()?))
            .stdout(Stdio::null())
            .stderr(notes)
            .process_group(0)
            .spawn()?;
        let child = Some(Awaited::new(child.id()));
        // The runtime must have seen that it takes messages.
        sender.writable().await?;
        Ok(Self { child, pipe: sender, told: None })
    }

    /// Names the group to watch over. The deadline must have been told before.
    pub(in crate::cli) fn watch_over(&self, group: Group) -> io::Result<()> {
        self.tell(Message::Group(group.id()))
    }

    /// Sends the time at which to kill the group, if it has changed. `known` are
    /// both clocks, read before that time was computed. If the message can't be
    /// sent now, the watchdog has an earlier time, and the next call sends it again.
    pub(in crate::cli) fn kill_at(&mut self, at: Moment, known: ClockPair) -> io::Result<()> {
        if self.told != Some(at) {
            self.tell(Message::KillAt { at, known })?;
            self.told = Some(at);
        }
        Ok(())
    }

    /// Says that there is nothing to watch over any more. It ends, and is not
    /// waited for.
    pub(in crate::cli) fn farewell(self) {
        // A watchdog that does not hear this sees the pipe end, and the group
        // gone.
        let _ = self.tell(Message::Farewell);
    }

    /// Whether it has ended since this was asked last.
    pub(in crate::cli) fn has_just_ended(&mut self) -> io::Result<bool> {
        let Some(child) = &self.child else { return Ok(false) };
        let state = process::look_at(child.id())?;
        let ended = matches!(state, ChildState::Exited(_) | ChildState::Killed(_));
        self.child.take_if(|_| ended);
        Ok(ended)
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        // A pipe takes so few bytes whole or not at all.
        self.pipe.try_write(message.to_string().as_bytes()).map(|_| ())
    }
}

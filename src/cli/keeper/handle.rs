//! The keeper, seen from `lock`.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use tokio::net::unix::pipe::{self, Sender};

use super::Message;
use crate::{
    cli::{
        output::Output,
        process::{self, ChildState, Group},
    },
    clock::Moment,
};

/// A running keeper.
#[derive(Debug)]
pub(in crate::cli) struct Keeper {
    child: Child,
    pipe: Sender,
    told: Option<Moment>,
    ended: bool,
}

impl Keeper {
    /// Starts one, in a process group of its own: signals that are meant for
    /// this group or the command's do not reach it.
    pub(in crate::cli) async fn start(output: Output) -> io::Result<Self> {
        let (sender, receiver) = pipe::pipe()?;
        let child = Command::new(process::this_program()?)
            .arg0("leasehold")
            .args(["keeper", "--output", output.name()])
            .current_dir("/")
            .stdin(Stdio::from(receiver.into_blocking_fd()?))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        // The runtime must have seen that it takes messages.
        sender.writable().await?;
        Ok(Self { child, pipe: sender, told: None, ended: false })
    }

    /// Names the group to watch over. The deadline must have been told before.
    pub(in crate::cli) fn watch_over(&self, group: Group) -> io::Result<()> {
        self.tell(Message::Group(group.id()))
    }

    /// Says how long the group may live, if that has changed. What can't be
    /// said now leaves the keeper with an earlier moment, and is said again.
    pub(in crate::cli) fn kill_at(&mut self, moment: Moment) -> io::Result<()> {
        if self.told != Some(moment) {
            self.tell(Message::KillAt(moment))?;
            self.told = Some(moment);
        }
        Ok(())
    }

    /// Says that the command has ended and was reaped.
    pub(in crate::cli) fn farewell(self) {
        // A keeper that does not hear this sees the pipe end, and the group
        // gone.
        let _ = self.tell(Message::Farewell);
    }

    /// Whether it has ended since this was asked last.
    pub(in crate::cli) fn has_just_ended(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let state = process::look_at(self.child.id())?;
        self.ended = matches!(state, ChildState::Exited(_) | ChildState::Killed(_));
        Ok(self.ended)
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        // A pipe takes so few bytes whole or not at all.
        self.pipe.try_write(message.to_string().as_bytes()).map(|_| ())
    }
}

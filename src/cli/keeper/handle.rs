//! The keeper, seen from `lock`.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use tokio::net::unix::pipe::{self, Sender};

use super::Message;
use crate::{
    cli::{
        output::Output,
        process::{self, Awaited, ChildState, Group},
    },
    clock::Moment,
};

/// A running keeper.
#[derive(Debug)]
pub(in crate::cli) struct Keeper {
    /// Until it has ended.
    child: Option<Awaited>,
    pipe: Sender,
    told: Option<Moment>,
}

impl Keeper {
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

    /// Says how long the group may live, if that has changed. What can't be
    /// said now leaves the keeper with an earlier moment, and is said again.
    pub(in crate::cli) fn kill_at(&mut self, moment: Moment) -> io::Result<()> {
        if self.told != Some(moment) {
            self.tell(Message::KillAt(moment))?;
            self.told = Some(moment);
        }
        Ok(())
    }

    /// Says that there is nothing to watch over any more. It ends, and is not
    /// waited for.
    pub(in crate::cli) fn farewell(self) {
        // A keeper that does not hear this sees the pipe end, and the group
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

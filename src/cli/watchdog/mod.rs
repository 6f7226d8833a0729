//! Watchdog: a second process that kills the command before the grant ends, even if
//! `lock` or `elect` was stopped or killed. `lock` stands for both here.
//!
//! `lock` sends each new time of the kill through a pipe. The watchdog kills the
//! command's process group at the last time it received. If the pipe closes without a
//! final message, it sends SIGTERM first.
//!
//! Each message has a reading of both clocks. A machine that was paused from outside
//! may resume with a boot-time clock that missed the pause. The wall clock has then
//! jumped, and the kill is brought forward by that jump, as is the client's own
//! deadline.

mod handle;
mod message;
mod watch;

use std::{io, os::fd::AsFd, process::ExitCode};

use tokio::{net::unix::pipe::Receiver, runtime::Builder};

pub(super) use handle::Watchdog;
pub(super) use message::Message;
use watch::{Action, Event, Watch};

use super::{
    exit::{Failure, USAGE},
    output::Output,
    process::{self, Group, Signal},
};
use leasehold_time::ClockPair;

/// Runs as the watchdog. `subject` names the grant in its note.
pub(super) fn run(output: Output, subject: &str) -> Result<ExitCode, Failure> {
    // A signal to all processes, as from a terminal or a supervisor, must not end the
    // watchdog before the command.
    process::block_signals()?;
    Builder::new_current_thread().enable_all().build()?.block_on(watch(output, subject))
}

async fn watch(output: Output, subject: &str) -> Result<ExitCode, Failure> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let pipe = Receiver::from_owned_fd(stdin)
        .map_err(|_| Failure::new(USAGE, "usage", "watchdog is started by `leasehold lock`"))?;
    let mut lines = Lines { pipe, buffer: Vec::new(), is_closed: false };
    let mut watch = Watch::default();
    loop {
        let event = tokio::select! {
            biased;
            event = lines.next() => event,
            () = leasehold_runtime::sleep_until(watch.next_check(&ClockPair::now())) => {
                let group = watch.group().and_then(Group::of);
                Event::Check { is_group_gone: group.is_some_and(Group::is_gone) }
            }
        };
        match watch.on(event, &ClockPair::now()) {
            None => {}
            Some(Action::Finish) => return Ok(ExitCode::SUCCESS),
            Some(Action::Terminate(leader)) => signal(leader, Signal::SIGTERM),
            Some(Action::Kill(leader)) => {
                signal(leader, Signal::SIGKILL);
                output
                    .note(format_args!("{subject} was not kept alive in time; killed the command"));
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn signal(leader: u32, signal: Signal) {
    if let Some(group) = Group::of(leader) {
        group.signal(signal);
    }
}

/// Messages from the pipe.
struct Lines {
    pipe: Receiver,
    buffer: Vec<u8>,
    is_closed: bool,
}

impl Lines {
    /// Waits for the next message, or for the end of the pipe, which is returned once.
    /// Cancel-safe.
    async fn next(&mut self) -> Event {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line);
                return Message::parse(text.trim_end()).map_or(Event::Disconnected, Event::Message);
            }
            if self.is_closed {
                return std::future::pending().await;
            }
            let mut chunk = [0; 512];
            match self.pipe.try_read(&mut chunk) {
                Ok(0) => {
                    self.is_closed = true;
                    return Event::Disconnected;
                }
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // An error here also fails the next read.
                    let _ = self.pipe.readable().await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_closed = true;
                    return Event::Disconnected;
                }
            }
        }
    }
}

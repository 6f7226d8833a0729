//! The watchdog: a second process beside `lock` or `elect` that makes the command
//! die with its grant, also if the first was stopped or killed. `lock` stands
//! for both here.
//!
//! `lock` tells it each new deadline through a pipe. The watchdog kills the
//! command's process group when the last of them is reached; if the pipe ends
//! without a farewell, it asks the group to end first.
//!
//! Each deadline comes with a reading of both clocks. A machine that was paused
//! from outside may resume with a boot-time clock that missed the pause. The
//! difference then shows on the wall clock, and the kill comes that much earlier,
//! as the client's own deadline does.

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

/// Runs as the watchdog.
pub(super) fn run(output: Output) -> Result<ExitCode, Failure> {
    // Whoever ends everything at once, such as a terminal or a supervisor,
    // must not end the watchdog before the command.
    process::block_signals()?;
    Builder::new_current_thread().enable_all().build()?.block_on(keep(output))
}

async fn keep(output: Output) -> Result<ExitCode, Failure> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let pipe = Receiver::from_owned_fd(stdin)
        .map_err(|_| Failure::new(USAGE, "usage", "keeper is started by `leasehold lock`"))?;
    let mut lines = Lines { pipe, begun: Vec::new(), ended: false };
    let mut watch = Watch::default();
    loop {
        let event = tokio::select! {
            biased;
            event = lines.next() => event,
            () = leasehold_runtime::sleep_until(watch.next_look(&ClockPair::now())) => {
                let group = watch.group().and_then(Group::of);
                Event::Looked { gone: group.is_some_and(Group::is_gone) }
            }
        };
        match watch.on(event, &ClockPair::now()) {
            None => {}
            Some(Action::Finish) => return Ok(ExitCode::SUCCESS),
            Some(Action::Terminate(leader)) => signal(leader, Signal::SIGTERM),
            Some(Action::Kill(leader)) => {
                signal(leader, Signal::SIGKILL);
                output.note("the grant was not kept alive in time: killed the command");
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

/// The messages from the pipe.
struct Lines {
    pipe: Receiver,
    begun: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// The next message, or the end, once. Cancel-safe.
    async fn next(&mut self) -> Event {
        loop {
            if let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.begun.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line);
                return Message::parse(text.trim_end()).map_or(Event::HungUp, Event::Told);
            }
            if self.ended {
                return std::future::pending().await;
            }
            let mut buffer = [0; 512];
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    return Event::HungUp;
                }
                Ok(count) => self.begun.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Readiness that can't be waited for shows as an error of
                    // the next read.
                    let _ = self.pipe.readable().await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.ended = true;
                    return Event::HungUp;
                }
            }
        }
    }
}

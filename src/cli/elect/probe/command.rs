//! A probe that is a command of its own.
//!
//! It runs in a process group of its own, with a watchdog of its own: nothing of
//! it outlives the probe, nor us.

use std::{convert::Infallible, ffi::OsString, io, process::Stdio, str::FromStr, time::Duration};

use tokio::{
    net::unix::pipe::{self, Receiver},
    signal::unix::{self, SignalKind},
};

use super::Probe;
use crate::cli::{
    output::Output, process, process::Awaited, process::ChildState, process::Group,
    process::Signal, run::Program, watchdog::Watchdog,
};
use leasehold_time::ClockPair;

/// As much of what a probe has written to standard error last is told.
const LONGEST_TAIL: usize = 1024;

/// As much as may be in a pipe, in reads of that size.
const READS_AT_END: usize = 64;

/// The watchdog ends a probe this much later than we would.
const WATCHDOG_DELAY: Duration = Duration::from_secs(1);

/// What `sh -c` is given.
#[derive(Debug, Clone)]
pub(in super::super) struct CommandProbe(String);

impl FromStr for CommandProbe {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl CommandProbe {
    /// With this in its environment, and for so long at most.
    pub(in super::super) fn seeing<'a>(
        &self,
        environment: &'a [(&'static str, OsString)],
        timeout: Duration,
    ) -> SeeingProbe<'a> {
        let command = ["sh", "-c", &self.0].map(OsString::from);
        SeeingProbe { command, environment, timeout }
    }
}

/// A command, and what it sees.
#[derive(Debug)]
pub(in super::super) struct SeeingProbe<'a> {
    command: [OsString; 3],
    environment: &'a [(&'static str, OsString)],
    timeout: Duration,
}

impl Probe for SeeingProbe<'_> {
    const KIND: &'static str = "command";

    async fn ask(&self) -> Result<(), String> {
        self.run().await.unwrap_or_else(|error| Err(format!("can't be run: {error}")))
    }
}

impl SeeingProbe<'_> {
    async fn run(&self) -> io::Result<Result<(), String>> {
        // Before there are children, so that no change is missed.
        let mut changes = unix::signal(SignalKind::child())?;
        let mut question = self.begin().await?;
        loop {
            tokio::select! {
                biased;
                _ = changes.recv() => {
                    if let Some(ended) = question.look()? {
                        return Ok(match ended {
                            ChildState::Exited(0) => Ok(()),
                            ended => Err(question.complaint(ended)),
                        });
                    }
                }
                ready = question.said.readable(), if !question.is_silent => {
                    ready?;
                    question.listen();
                }
            }
        }
    }

    async fn begin(&self) -> io::Result<Question> {
        let (sender, said) = pipe::pipe()?;
        let stderr = sender.into_blocking_fd()?;
        // It reports on grants, and this is none.
        let mut watchdog = Watchdog::start(Output::Text, Stdio::null()).await?;
        let known = ClockPair::now();
        watchdog.kill_at(known.at() + self.timeout + WATCHDOG_DELAY, known)?;
        let program =
            Program { command: &self.command, environment: self.environment, output: Output::Text };
        let child = program.start(|command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        })?;
        let group = Group::of(child.id());
        let group = group.ok_or_else(|| io::Error::other("it has no process group"))?;
        Ok(Question {
            group,
            child,
            watchdog: Some(watchdog),
            is_started: false,
            said,
            is_silent: false,
            tail: Vec::new(),
        })
    }
}

/// One run of a probe. When this is dropped, nothing of it is left.
struct Question {
    group: Group,
    /// Not reaped before this is dropped: so the group's id stays its own.
    child: Awaited,
    watchdog: Option<Watchdog>,
    is_started: bool,
    said: Receiver,
    is_silent: bool,
    tail: Vec<u8>,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.group.signal(Signal::SIGKILL);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.farewell();
        }
    }
}

impl Question {
    /// How it has ended, if it has. Lets it begin once it can't escape.
    fn look(&mut self) -> io::Result<Option<ChildState>> {
        match process::glance_at(self.child.id())? {
            ended @ (ChildState::Exited(_) | ChildState::Killed(_)) => return Ok(Some(ended)),
            ChildState::Stopped(Signal::SIGSTOP) if !self.is_started => {
                if let Some(watchdog) = &self.watchdog {
                    watchdog.watch_over(self.group)?;
                }
                self.is_started = true;
                self.group.signal(Signal::SIGCONT);
            }
            ChildState::Running | ChildState::Stopped(_) => {}
        }
        Ok(None)
    }

    /// Takes what it has written, so that it never has to wait for us, and
    /// keeps the end of that. Says whether there may be more.
    fn listen(&mut self) -> bool {
        let mut buffer = [0; LONGEST_TAIL];
        match self.said.try_read(&mut buffer) {
            Ok(0) => self.is_silent = true,
            Ok(count) => {
                self.tail.extend_from_slice(&buffer[..count]);
                let excess = self.tail.len().saturating_sub(LONGEST_TAIL);
                self.tail.drain(..excess);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.is_silent = true,
        }
        false
    }

    /// What went wrong, for people.
    fn complaint(&mut self, ended: ChildState) -> String {
        // Not to the end of the pipe: something else may hold it.
        for _ in 0..READS_AT_END {
            if !self.listen() {
                break;
            }
        }
        let ended = match ended {
            ChildState::Killed(signal) => format!("signal: {} ({signal})", signal as i32),
            ChildState::Exited(code) => format!("exit status: {code}"),
            ChildState::Running | ChildState::Stopped(_) => "no end".to_owned(),
        };
        match tail_of(&self.tail) {
            tail if tail.is_empty() => ended,
            tail => format!("{ended}: {tail}"),
        }
    }
}

/// As one line.
fn tail_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_wrote_is_one_line() {
        assert_eq!(tail_of(b""), "");
        assert_eq!(tail_of(b"\nno disk\r\n\n  no hope\n"), "no disk; no hope");
        assert_eq!(tail_of(b"\xffx"), "\u{fffd}x");
    }
}

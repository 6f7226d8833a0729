//! Probe by a command.
//!
//! It runs in its own process group with its own watchdog, so that none of its
//! processes outlives the probe or this process.

use std::{convert::Infallible, ffi::OsString, io, process::Stdio, str::FromStr, time::Duration};

use tokio::{
    net::unix::pipe::{self, Receiver},
    signal::unix::{self, SignalKind},
};

use super::Probe;
use crate::cli::{
    output::Output, process, process::ChildState, process::Group, process::Signal,
    process::TrackedChild, run::Program, watchdog::Watchdog,
};
use leasehold_time::ClockPair;

/// Number of bytes from the end of standard error that a message includes.
const TAIL_BYTES: usize = 1024;

/// Maximum number of reads of `TAIL_BYTES` after the end: the capacity of a pipe.
const MAX_FINAL_READS: usize = 64;

/// Delay of the watchdog's kill after the timeout of the probe.
const WATCHDOG_DELAY: Duration = Duration::from_secs(1);

/// Script for `sh -c`.
#[derive(Debug, Clone)]
pub(in super::super) struct CommandProbe(String);

impl FromStr for CommandProbe {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl CommandProbe {
    /// Adds the environment and the timeout.
    pub(in super::super) fn with_environment<'a>(
        &self,
        environment: &'a [(&'static str, OsString)],
        timeout: Duration,
    ) -> PreparedProbe<'a> {
        let command = ["sh", "-c", &self.0].map(OsString::from);
        PreparedProbe { command, environment, timeout }
    }
}

/// Probe with its environment.
#[derive(Debug)]
pub(in super::super) struct PreparedProbe<'a> {
    command: [OsString; 3],
    environment: &'a [(&'static str, OsString)],
    timeout: Duration,
}

impl Probe for PreparedProbe<'_> {
    const KIND: &'static str = "command";

    async fn check(&self) -> Result<(), String> {
        self.run().await.unwrap_or_else(|error| Err(format!("can't be run: {error}")))
    }
}

impl PreparedProbe<'_> {
    async fn run(&self) -> io::Result<Result<(), String>> {
        // Before the first child, so that no change is missed.
        let mut changes = unix::signal(SignalKind::child())?;
        let mut run = self.start().await?;
        loop {
            tokio::select! {
                biased;
                _ = changes.recv() => {
                    if let Some(ended) = run.poll()? {
                        return Ok(match ended {
                            ChildState::Exited(0) => Ok(()),
                            ended => Err(run.describe(ended)),
                        });
                    }
                }
                ready = run.stderr.readable(), if !run.is_closed => {
                    ready?;
                    run.read_stderr();
                }
            }
        }
    }

    async fn start(&self) -> io::Result<ProbeRun> {
        let (sender, receiver) = pipe::pipe()?;
        let stderr = sender.into_blocking_fd()?;
        // Without notes, because they are about grants.
        let mut watchdog = Watchdog::start(Output::Text, "the probe", Stdio::null()).await?;
        let known = ClockPair::now();
        watchdog.kill_at(known.at() + self.timeout + WATCHDOG_DELAY, known)?;
        let program =
            Program { command: &self.command, environment: self.environment, output: Output::Text };
        let child = program.start(|command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        })?;
        let group = Group::of(child.id());
        let group = group.ok_or_else(|| io::Error::other("it has no process group"))?;
        Ok(ProbeRun {
            group,
            child,
            watchdog: Some(watchdog),
            is_started: false,
            stderr: receiver,
            is_closed: false,
            tail: Vec::new(),
        })
    }
}

/// One run of a probe. Dropping this value kills its processes.
struct ProbeRun {
    group: Group,
    /// Not reaped before the drop, so that the group's ID can't be reused.
    child: TrackedChild,
    watchdog: Option<Watchdog>,
    is_started: bool,
    stderr: Receiver,
    is_closed: bool,
    tail: Vec<u8>,
}

impl Drop for ProbeRun {
    fn drop(&mut self) {
        self.group.signal(Signal::SIGKILL);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.finish();
        }
    }
}

impl ProbeRun {
    /// Returns how the probe ended, if it has. Starts it when the watchdog knows its
    /// group.
    fn poll(&mut self) -> io::Result<Option<ChildState>> {
        match process::peek_child(self.child.id())? {
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

    /// Reads standard error, so that the probe never blocks, and keeps the end.
    /// Returns whether there may be more.
    fn read_stderr(&mut self) -> bool {
        let mut buffer = [0; TAIL_BYTES];
        match self.stderr.try_read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(count) => {
                self.tail.extend_from_slice(&buffer[..count]);
                let excess = self.tail.len().saturating_sub(TAIL_BYTES);
                self.tail.drain(..excess);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.is_closed = true,
        }
        false
    }

    /// Describes the end of a failed probe.
    fn describe(&mut self, ended: ChildState) -> String {
        // Bounded, because another process may hold the pipe open and write to it.
        for _ in 0..MAX_FINAL_READS {
            if !self.read_stderr() {
                break;
            }
        }
        let ended = match ended {
            ChildState::Killed(signal) => format!("signal: {} ({signal})", signal as i32),
            ChildState::Exited(code) => format!("exit status: {code}"),
            ChildState::Running | ChildState::Stopped(_) => "still running".to_owned(),
        };
        match single_line(&self.tail) {
            tail if tail.is_empty() => ended,
            tail => format!("{ended}: {tail}"),
        }
    }
}

/// Joins lines with semicolons.
fn single_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_joined_to_one_line() {
        assert_eq!(single_line(b""), "");
        assert_eq!(single_line(b"\nno disk\r\n\n  read-only\n"), "no disk; read-only");
        assert_eq!(single_line(b"\xffx"), "\u{fffd}x");
    }
}

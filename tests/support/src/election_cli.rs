//! Elections on the command line: commands, their messages on standard error and the output
//! of observers.

use std::{
    io::{BufRead, BufReader},
    process::{ChildStderr, Command, Output, Stdio},
};

use serde_json::Value;

use crate::{Daemon, Running, until};

/// Command that leads until SIGTERM, then prints "asked" and exits with 4.
pub const EXITS_ON_SIGTERM: &str = "trap 'echo asked; exit 4' TERM; echo $LEASEHOLD_TOKEN; \
                      while :; do sleep 0.05; done";

/// Command that ignores SIGTERM.
pub const IGNORES_SIGTERM: &str =
    "trap '' TERM; echo $LEASEHOLD_TOKEN; while :; do sleep 0.05; done";

pub fn elect(daemon: &Daemon, options: &[&str], script: &str) -> Command {
    daemon.command(&[&["elect", "jobs"], options, &["--", "sh", "-c", script]].concat())
}

pub fn begin(daemon: &Daemon, options: &[&str], script: &str) -> Running {
    Running::start(&mut elect(daemon, options, script))
}

/// Starts the command with a reader of its standard error.
pub fn begin_with_stderr(daemon: &Daemon, options: &[&str], script: &str) -> (Running, Messages) {
    let mut running = Running::start(elect(daemon, options, script).stderr(Stdio::piped()));
    let messages = Messages(BufReader::new(running.child.stderr.take().unwrap()));
    (running, messages)
}

/// Lines on the standard error of a command.
pub struct Messages(pub BufReader<ChildStderr>);

impl Messages {
    /// Reads up to a line that contains a text, and returns that line.
    pub fn until(&mut self, text: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "no {text:?} in {all:?}");
            if line.contains(text) {
                return line;
            }
            all.push_str(&line);
        }
    }
}

pub fn token(running: &mut Running) -> u64 {
    let line = running.line();
    line.parse().unwrap_or_else(|_| panic!("{line:?} is no token"))
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn leader(daemon: &Daemon) -> Value {
    let output = daemon.run(&["leader", "jobs", "--output", "json"]);
    let state: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(code(&output), i32::from(state["leader"].is_null()));
    state
}

/// Waits until the election has this number of candidates.
pub async fn candidates(daemon: &Daemon, count: u32) {
    until(async || (leader(daemon)["candidates"] == count).then_some(())).await;
}

pub fn step_down(daemon: &Daemon, timeout: &str) -> Output {
    daemon.run(&["step-down", "jobs", "--reason", "an upgrade", "--timeout", timeout])
}

/// Returns the leader's next value in an observer's output that differs from
/// the last one.
pub fn next_value(observer: &mut Running, last: &mut Option<Value>) -> Value {
    loop {
        let state: Value = serde_json::from_str(&observer.line()).unwrap();
        let value = state["leader"]["value"].clone();
        if last.as_ref() != Some(&value) {
            *last = Some(value.clone());
            return value;
        }
    }
}

//! Elections on the command line: commands, their notes and what observers print.

use std::{
    io::{BufRead, BufReader},
    process::{ChildStderr, Command, Output, Stdio},
};

use serde_json::Value;

use crate::{Daemon, Running, until};

/// Leads until it is asked to end, and then says so.
pub const POLITE: &str = "trap 'echo asked; exit 4' TERM; echo $LEASEHOLD_TOKEN; \
                      while :; do sleep 0.05; done";

/// Stays, whatever it is asked.
pub const STUBBORN: &str = "trap '' TERM; echo $LEASEHOLD_TOKEN; while :; do sleep 0.05; done";

pub fn elect(daemon: &Daemon, options: &[&str], script: &str) -> Command {
    daemon.command(&[&["elect", "jobs"], options, &["--", "sh", "-c", script]].concat())
}

pub fn begin(daemon: &Daemon, options: &[&str], script: &str) -> Running {
    Running::start(&mut elect(daemon, options, script))
}

/// With its notes to read.
pub fn begin_noting(daemon: &Daemon, options: &[&str], script: &str) -> (Running, Notes) {
    let mut running = Running::start(elect(daemon, options, script).stderr(Stdio::piped()));
    let notes = Notes(BufReader::new(running.child.stderr.take().unwrap()));
    (running, notes)
}

pub struct Notes(pub BufReader<ChildStderr>);

impl Notes {
    /// Reads until a line has these words.
    pub fn until(&mut self, words: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "no {words:?} in {all:?}");
            if line.contains(words) {
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

/// Waits until so many stand in the queue.
pub async fn candidates(daemon: &Daemon, count: u32) {
    until(async || (leader(daemon)["candidates"] == count).then_some(())).await;
}

pub fn step_down(daemon: &Daemon, within: &str) -> Output {
    daemon.run(&["step-down", "jobs", "--reason", "an upgrade", "--within", within])
}

/// The leader's value in the next line that an observer writes, and that has
/// another than the last.
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

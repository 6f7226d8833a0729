//! Worker processes of the demo, as the demo sees them.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout},
    sync::mpsc,
};

use super::{
    server::{hidden_command, no_pipe},
    worker::{Answer, Report},
};
use crate::cli::{
    exit::Failure,
    process::{self, ChildState, Group, Signal},
};

/// Capacity of the queue of answers.
const ANSWERS_CAPACITY: usize = 4;

/// Message about a worker.
#[derive(Debug)]
pub(super) struct Message {
    /// Index of the worker.
    pub(super) worker: usize,
    /// Process that sent it.
    pub(super) pid: u32,
    /// `None` when the process has ended.
    pub(super) report: Option<Report>,
}

/// Running worker process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    answers: mpsc::Sender<Answer>,
    pid: u32,
    is_killed: bool,
}

impl Worker {
    /// Starts a worker, which sends its reports to `messages`.
    pub(super) fn start(
        index: usize,
        endpoint: &str,
        messages: mpsc::Sender<Message>,
    ) -> Result<Self, Failure> {
        let mut command = hidden_command("demo-worker")?;
        command
            .args(["--endpoint", endpoint, "--name", &name(index)])
            .arg(std::process::id().to_string())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let pid = child.id().ok_or_else(no_pipe)?;
        let input = child.stdin.take().ok_or_else(no_pipe)?;
        let output = child.stdout.take().ok_or_else(no_pipe)?;
        leasehold_runtime::spawn(forward(index, pid, output, messages));
        let (answers, receiver) = mpsc::channel(ANSWERS_CAPACITY);
        leasehold_runtime::spawn(forward_answers(receiver, input));
        Ok(Self { child, answers, pid, is_killed: false })
    }

    /// Returns the process ID.
    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = Group::of(self.pid) {
            group.signal(signal);
        }
    }

    /// Returns whether the process is stopped by a signal.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(process::peek_child(self.pid), Ok(ChildState::Stopped(_)))
    }

    /// Returns whether this process sent a message, and was not killed since.
    pub(super) const fn has_sent(&self, message: &Message) -> bool {
        self.pid == message.pid && !self.is_killed
    }

    /// Kills the process and waits for its end.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        self.is_killed = true;
        Ok(self.child.kill().await?)
    }

    /// Answers a write. A worker that has ended needs no answer.
    pub(super) fn answer(&self, answer: Answer) {
        // A worker waits for each answer, so that the queue is never full.
        let _ = self.answers.try_send(answer);
    }
}

/// Name of a worker.
pub(super) fn name(index: usize) -> String {
    format!("worker-{}", index + 1)
}

/// Index of the worker with this name.
pub(super) fn index(name: &str) -> Option<usize> {
    let number: usize = name.strip_prefix("worker-")?.parse().ok()?;
    number.checked_sub(1)
}

/// Writes answers to a process until it ends. Dropping the sender closes its input.
async fn forward_answers(mut answers: mpsc::Receiver<Answer>, mut input: ChildStdin) {
    while let Some(answer) = answers.recv().await {
        let Ok(line) = serde_json::to_string(&answer) else { continue };
        if input.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Forwards the reports of a process until it ends.
async fn forward(worker: usize, pid: u32, output: ChildStdout, messages: mpsc::Sender<Message>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(report) = serde_json::from_str(&line) else { continue };
        if messages.send(Message { worker, pid, report: Some(report) }).await.is_err() {
            return;
        }
    }
    // The demo may have ended.
    let _ = messages.send(Message { worker, pid, report: None }).await;
}

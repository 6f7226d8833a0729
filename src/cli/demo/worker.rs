//! Worker of the demo: a process of this program that competes for the lock and campaigns
//! in the election. It prints reports as JSON lines, and reads the answers of the resource.

use std::{process::ExitCode, time::Duration};

use leasehold_client::{Client, Error, Guard};
use leasehold_time::Moment;
use serde::{Deserialize, Serialize};
use tokio::{runtime::Builder, sync::mpsc};

use super::{ELECTION, LOCK, TTL};
use crate::cli::{
    exit::Failure,
    output::{Output, line},
    process,
};

/// Number of writes of a hold.
const WRITES: u32 = 6;

/// Time between the check of the guard and the write. The demo pauses a worker within it.
const WORK_TIME: Duration = Duration::from_millis(300);

/// Delay before the next attempt after an error.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Message of a worker to the demo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(super) enum Report {
    /// Waits for the lock at this position.
    Waiting { position: u32 },
    /// Holds the lock.
    Granted { token: u64, waited_ms: u64 },
    /// Has checked that it holds the lock, and prepares a write.
    Working { token: u64 },
    /// Writes to the resource, and waits for an [`Answer`].
    Write { token: u64 },
    /// Has released the lock.
    Released { token: u64 },
    /// Has lost the lock.
    Lost { token: u64, message: String },
    /// Leads the election.
    Leads { token: u64 },
    /// Has lost the leadership.
    LeadershipLost { message: String },
    /// Can't reach the daemon.
    Trouble { message: String },
}

/// Answer of the resource to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The write is accepted.
    Accepted,
    /// The token is stale.
    Refused,
}

/// Internal command: a worker of a demo.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DemoWorker {
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    name: String,
    /// Process that starts this one
    parent: u32,
}

impl DemoWorker {
    /// Competes until standard input ends, or the parent does.
    pub(in crate::cli) fn run(self) -> ExitCode {
        let ended = process::end_with(self.parent).map_err(Failure::from).and_then(|()| {
            Builder::new_current_thread().enable_all().build()?.block_on(self.compete())
        });
        ended.map_or_else(|failure| failure.report(Output::Text), |()| ExitCode::SUCCESS)
    }

    async fn compete(self) -> Result<(), Failure> {
        let mut input = process::input()?;
        let client = Client::builder(self.endpoint.as_str()).client_name(&self.name).ttl(TTL);
        let client = client.connect().await?;
        let (sender, mut answers) = mpsc::channel(1);
        let forward_answers = async {
            while let Some(line) = input.next_line().await? {
                if let Ok(answer) = serde_json::from_str(&line) {
                    // The receiver lives as long as this future.
                    let _ = sender.send(answer).await;
                }
            }
            Ok(())
        };
        tokio::select! {
            ended = forward_answers => ended,
            ended = hold_in_turn(&client, &mut answers) => ended,
            ended = lead_in_turn(&client, self.name.as_bytes()) => ended,
        }
    }
}

fn report(report: &Report) -> Result<(), Failure> {
    Ok(line(serde_json::to_string(report).map_err(std::io::Error::from)?)?)
}

/// Reports from a callback. If it can't be written, standard input has ended as well.
fn try_report(entry: &Report) {
    let _ = report(entry);
}

/// Holds the lock again and again.
async fn hold_in_turn(
    client: &Client,
    answers: &mut mpsc::Receiver<Answer>,
) -> Result<(), Failure> {
    loop {
        let started = Moment::now();
        let request = client.lock(LOCK).on_progress(|progress| {
            if progress.position > 0 {
                try_report(&Report::Waiting { position: progress.position });
            }
        });
        match request.await {
            Ok(guard) => {
                let waited = Moment::now().since(started);
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                report(&Report::Granted { token: guard.token().get(), waited_ms })?;
                hold(guard, answers).await?;
            }
            Err(error @ (Error::Unavailable { .. } | Error::Lost { .. })) => {
                report(&Report::Trouble { message: error.to_string() })?;
                leasehold_runtime::sleep(RETRY_DELAY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes a few times, then releases the lock.
async fn hold(guard: Guard, answers: &mut mpsc::Receiver<Answer>) -> Result<(), Failure> {
    let token = guard.token().get();
    for _ in 0..WRITES {
        if !guard.is_valid() {
            break;
        }
        report(&Report::Working { token })?;
        leasehold_runtime::sleep(WORK_TIME).await;
        // A pause may have ended here. No check of the guard can exclude that: only the
        // resource can refuse the write.
        report(&Report::Write { token })?;
        if answers.recv().await != Some(Answer::Accepted) {
            break;
        }
    }
    if guard.is_valid() {
        // An unconfirmed release is retried in the background.
        let _ = guard.release().await;
        return report(&Report::Released { token });
    }
    let message = guard.lost().await.message;
    report(&Report::Lost { token, message })
}

/// Leads the election again and again.
async fn lead_in_turn(client: &Client, value: &[u8]) -> Result<(), Failure> {
    let election = client.election(ELECTION).value(value);
    let election = election.on_error(|error| {
        let message = error.to_string();
        try_report(&match error {
            Error::Lost { .. } => Report::LeadershipLost { message },
            _ => Report::Trouble { message },
        });
    });
    let led = election.run_as_leader(async |leadership| {
        try_report(&Report::Leads { token: leadership.token().get() });
        std::future::pending::<()>().await;
    });
    Ok(led.await?)
}

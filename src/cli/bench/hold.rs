//! `bench hold`: memory and CPU time of held locks and live sessions.

use std::{process::ExitCode, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{sync::Mutex, task::JoinSet};

use super::{
    server::Server,
    stream::{Stream, connect},
};
use crate::cli::{exit::FAILED, exit::Failure, output::Output, output::line};
use leasehold_runtime::{sleep, sleep_until};
use leasehold_time::Moment;

/// TTL of the sessions.
const TTL: Duration = Duration::from_secs(15);

/// Number of sessions per connection.
const PER_CONNECTION: usize = 100;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Starts one daemon per measurement, so that the memory of an idle daemon is \
known. Memory is the resident memory beyond that of the idle daemon. CPU is the daemon's CPU time \
while all sessions are kept alive, every third of their TTL of 15 s.

Examples:
  leasehold bench hold
  leasehold bench hold --locks 1000000 --sessions 0"
)]
pub(super) struct Hold {
    /// Number of locks that one session holds
    #[arg(long, default_value_t = 10_000)]
    locks: usize,
    /// Number of sessions that hold one lock each
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// Time for which the sessions are kept alive
    #[arg(long, default_value = "20s", value_parser = crate::cli::times::parse_duration)]
    length: Duration,
}

/// Result of one measurement.
struct Found {
    held: usize,
    memory: u64,
    /// Share of one core.
    cpu: f64,
    keep_alives: u64,
    lost: u64,
}

impl Hold {
    pub(super) async fn run(self, output: Output) -> Result<ExitCode, Failure> {
        let row = |name: String, found: &Found| {
            let Found { held, memory, cpu, keep_alives, lost } = found;
            match output {
                Output::Json => line(json!({
                    "case": name, "held": held, "memory_bytes": memory,
                    "bytes_each": memory / (*held as u64).max(1), "cpu_share": cpu,
                    "keep_alives": keep_alives, "lost": lost,
                })),
                Output::Text => line(format_args!(
                    "{name:<34}{:>11.2} MiB{:>9.2} KiB{:>9.2} %{keep_alives:>12}{lost:>7}",
                    *memory as f64 / 1048576.0,
                    *memory as f64 / 1024.0 / (*held as f64).max(1.0),
                    cpu * 100.0,
                )),
            }
        };
        if output == Output::Text {
            line(format_args!(
                "{:<34}{:>15}{:>13}{:>11}{:>12}{:>7}",
                "", "over idle", "each", "of a core", "keep-alives", "lost"
            ))?;
        }
        if self.locks > 0 {
            row(format!("{} locks, one session", self.locks), &self.one_session().await?)?;
        }
        if self.sessions > 0 {
            row(format!("{} sessions, a lock each", self.sessions), &self.many_sessions().await?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn daemon(&self, name: &str) -> Result<Server, Failure> {
        let max = |limit: &str, count: usize| [format!("--max-{limit}"), (count + 10).to_string()];
        let mut arguments = Vec::new();
        arguments.extend(max("locks", self.locks.max(self.sessions)));
        arguments.extend(max("locks-per-session", self.locks));
        arguments.extend(max("sessions", self.sessions));
        Server::daemon(name, false, &arguments)
    }

    async fn one_session(&self) -> Result<Found, Failure> {
        let server = self.daemon("locks")?;
        let channel = connect(&server.endpoint).await?;
        let mut stream = Stream::open(&channel, TTL.as_millis() as u32).await?;
        let idle = server.memory()?;
        let mut alive = Moment::now();
        for number in 0..self.locks {
            stream.acquire(&format!("lock-{number:07}")).await?;
            if Moment::now().since(alive) > TTL / 3 {
                stream.keep_alive().await?;
                alive = Moment::now();
            }
        }
        self.watch(&server, idle, self.locks, vec![stream]).await
    }

    async fn many_sessions(&self) -> Result<Found, Failure> {
        let server = self.daemon("sessions")?;
        let idle = server.memory()?;
        let mut streams = Vec::with_capacity(self.sessions);
        let mut channel = connect(&server.endpoint).await?;
        for number in 0..self.sessions {
            if number % PER_CONNECTION == 0 {
                channel = connect(&server.endpoint).await?;
            }
            let mut stream = Stream::open(&channel, TTL.as_millis() as u32).await?;
            stream.acquire(&format!("lock-{number:07}")).await?;
            streams.push(stream);
        }
        self.watch(&server, idle, self.sessions, streams).await
    }

    /// Keeps all sessions alive, evenly spread over time, and measures the daemon.
    async fn watch(
        &self,
        server: &Server,
        idle: u64,
        held: usize,
        streams: Vec<Stream>,
    ) -> Result<Found, Failure> {
        let counts = Arc::new(Mutex::new((0_u64, 0_u64)));
        let start = Moment::now();
        let end = start + self.length;
        let count = streams.len() as u32;
        let mut keepers = JoinSet::new();
        for (number, mut stream) in streams.into_iter().enumerate() {
            let counts = Arc::clone(&counts);
            let mut next = start + TTL / 3 * number as u32 / count;
            keepers.spawn(async move {
                while next < end {
                    sleep_until(next).await;
                    let kept = stream.keep_alive().await;
                    let mut counts = counts.lock().await;
                    match kept {
                        Ok(()) => counts.0 += 1,
                        Err(_) => {
                            counts.1 += 1;
                            break;
                        }
                    }
                    next = next + TTL / 3;
                }
                stream
            });
        }
        sleep(Duration::from_millis(500)).await;
        let (cpu, from) = (server.cpu()?, Moment::now());
        sleep_until(end).await;
        let used = server.cpu()? - cpu;
        let took = Moment::now().since(from);
        let memory = server.memory()?.saturating_sub(idle);
        while let Some(keeper) = keepers.join_next().await {
            keeper.map_err(|error| Failure::new(FAILED, "bench", error.to_string()))?;
        }
        let (keep_alives, lost) = *counts.lock().await;
        Ok(Found { held, memory, cpu: used.as_secs_f64() / took.as_secs_f64(), keep_alives, lost })
    }
}

//! `bench election`: time until the next candidate leads, compared with the documented
//! bound.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use leasehold_client::{Client, Leadership};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::server::Server;
use crate::cli::{exit::FAILED, exit::Failure, output::Output, output::line, output::note};
use leasehold_runtime::sleep;
use leasehold_time::Moment;

/// Time to detect a dead client, beyond its TTL.
const DETECTION_TIME: Duration = Duration::from_millis(200);

/// Bound of a handoff to a candidate of the same daemon.
const HANDOFF_TIME: Duration = Duration::from_millis(100);

/// Minimum lease duration, so that a dead daemon is detected as early as possible.
const DURATION: Duration = Duration::from_secs(15);

/// Timeout for the worker to lead, and for the candidate to be queued.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Command of the worker, which starts a second process.
const WORK: &str = "sleep 1000 & wait";

/// Maximum number of bytes of the worker's output in an error.
const MAX_TAIL_BYTES: usize = 1024;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Starts two daemons. A worker (`leasehold elect`) leads at one daemon, and a \
candidate waits at the same or at the other one. Ends the leader in different ways and measures the \
time until the candidate leads. Arguments after -- are for the daemons. Uses only one daemon if the \
store is not shared.

Exits with 1 if a time exceeds its bound.

Examples:
  leasehold bench election
  LEASEHOLD_AZURE_CONNECTION_STRING=UseDevelopmentStorage=true \\
    leasehold bench election -- --store azure"
)]
pub(super) struct Election {
    /// Number of measurements per case
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// TTL of the leader's session
    #[arg(long, default_value = "3s", value_parser = crate::cli::times::parse_duration)]
    ttl: Duration,
    /// Maximum interval between polls of a lease that a peer holds
    #[arg(long, default_value = "2s", value_parser = crate::cli::times::parse_duration)]
    poll_interval: Duration,
    /// Arguments of the daemons
    #[arg(last = true, value_name = "ARGUMENT")]
    serve: Vec<String>,
}

/// End of a leader.
#[derive(Clone, Copy)]
enum End {
    /// Its process is killed; its daemon continues.
    ClientKilled,
    /// Its process gets SIGTERM.
    ClientStopped,
    /// Its daemon is killed.
    DaemonKilled,
    /// Its daemon gets SIGTERM.
    DaemonStopped,
}

/// End of a leader, place of the candidate, and bound of the time.
struct Case {
    name: &'static str,
    end: End,
    at_peer: bool,
    bound: Duration,
}

/// Worker that leads. Killed on drop.
struct Worker {
    child: Child,
    /// File with its standard error.
    log: PathBuf,
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Worker {
    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        kill(Pid::from_raw(self.child.id() as i32), signal)
            .map_err(|error| Failure::new(FAILED, "bench", error.to_string()))
    }

    /// Waits until a condition is met. Fails if the worker ends or the timeout expires.
    async fn until(
        &mut self,
        event: &str,
        mut is_met: impl AsyncFnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let deadline = Moment::now() + STEP_TIMEOUT;
        while !is_met().await? {
            if let Some(ended) = self.child.try_wait()? {
                return Err(self.failure(&format!("the worker ended ({ended}) before {event}")));
            }
            if deadline.has_passed() {
                let limit = humantime::format_duration(STEP_TIMEOUT);
                return Err(self.failure(&format!("timed out after {limit} waiting until {event}")));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn failure(&self, why: &str) -> Failure {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(MAX_TAIL_BYTES)..]);
        let message = match tail.trim() {
            "" => format!("{why}; the worker printed nothing"),
            tail => format!("{why}; the worker printed: {tail}"),
        };
        Failure::new(FAILED, "bench", message)
    }
}

impl Election {
    pub(super) async fn run(self, output: Output) -> Result<ExitCode, Failure> {
        let mut is_within_bounds = true;
        if output == Output::Text {
            line(format_args!(
                "{:<46}{:>10}{:>10}{:>10}",
                "time until the next leader", "median", "maximum", "bound"
            ))?;
        }
        for case in self.cases(self.is_shared().await?) {
            let mut times = Vec::new();
            for round in 0..self.rounds {
                times.push(self.measure(&case, round).await?);
                if output == Output::Text {
                    note(format_args!("{}: {} of {}", case.name, round + 1, self.rounds));
                }
            }
            times.sort_unstable();
            let median = times.get(times.len() / 2).copied().unwrap_or_default();
            let max = times.last().copied().unwrap_or_default();
            is_within_bounds &= max <= case.bound;
            let (name, bound) = (case.name, case.bound);
            match output {
                Output::Text => line(format_args!(
                    "{name:<46}{:>8.2} s{:>8.2} s{:>8.2} s",
                    median.as_secs_f64(),
                    max.as_secs_f64(),
                    bound.as_secs_f64()
                ))?,
                Output::Json => line(json!({
                    "case": name, "median_ms": median.as_millis() as u64,
                    "max_ms": max.as_millis() as u64,
                    "bound_ms": bound.as_millis() as u64,
                }))?,
            }
        }
        Ok(ExitCode::from(if is_within_bounds { 0 } else { FAILED }))
    }

    /// Returns whether the daemons share a store, regardless of the source of that
    /// setting.
    async fn is_shared(&self) -> Result<bool, Failure> {
        let daemon = self.daemon("inspected")?;
        let client = Client::connect(&daemon.endpoint).await?;
        let stored = client.inspect_stored("bench").await?;
        client.close().await;
        Ok(stored.store.starts_with("azure"))
    }

    fn cases(&self, is_shared: bool) -> Vec<Case> {
        let case = |name, end, at_peer, bound| Case { name, end, at_peer, bound };
        let mut cases = vec![
            case("leader killed, same daemon", End::ClientKilled, false, self.ttl + DETECTION_TIME),
            case("leader stopped, same daemon", End::ClientStopped, false, HANDOFF_TIME),
        ];
        if is_shared {
            let poll = self.poll_interval;
            // The lease duration includes the margin of a second or 5 %.
            let expired = DURATION + poll + Duration::from_secs(1);
            cases.extend([
                case(
                    "leader killed, other daemon",
                    End::ClientKilled,
                    true,
                    self.ttl + DETECTION_TIME + poll,
                ),
                case("leader stopped, other daemon", End::ClientStopped, true, poll + HANDOFF_TIME),
                case(
                    "its daemon stopped, other daemon",
                    End::DaemonStopped,
                    true,
                    poll + HANDOFF_TIME,
                ),
                case("its daemon killed, other daemon", End::DaemonKilled, true, expired),
            ]);
        }
        cases
    }

    fn daemon(&self, name: &str) -> Result<Server, Failure> {
        let mut arguments = self.serve.clone();
        let seconds = |length: Duration| humantime::format_duration(length).to_string();
        arguments.extend(["--lease-duration".to_owned(), seconds(DURATION)]);
        arguments.extend(["--poll-interval".to_owned(), seconds(self.poll_interval)]);
        Server::daemon(name, false, &arguments)
    }

    /// Measures the time from the end of the leader until the candidate leads.
    async fn measure(&self, case: &Case, round: usize) -> Result<Duration, Failure> {
        let name = format!("bench-{}-{}-{round}", std::process::id(), case.name.replace(' ', "-"));
        let leaders = self.daemon("leaders")?;
        let others = if case.at_peer { Some(self.daemon("others")?) } else { None };
        let mut worker = self.worker(&leaders, &name)?;
        let candidates = others.as_ref().unwrap_or(&leaders);
        let client = Client::connect(&candidates.endpoint).await?;
        let election = client.election(&name);
        worker.until("it leads", async || Ok(election.leader().await?.leader.is_some())).await?;
        let candidate = tokio::spawn(client.election(&name).campaign("candidate").into_future());
        worker
            .until("the candidate waits", async || Ok(election.leader().await?.candidates > 0))
            .await?;
        // Worst case: the delays between polls have reached their maximum.
        sleep(self.poll_interval * 3).await;

        let from = Moment::now();
        match case.end {
            End::ClientKilled => worker.signal(Signal::SIGKILL)?,
            End::ClientStopped => worker.signal(Signal::SIGTERM)?,
            End::DaemonKilled => leaders.signal(Signal::SIGKILL)?,
            End::DaemonStopped => leaders.signal(Signal::SIGTERM)?,
        }
        let lead: Leadership =
            candidate.await.map_err(|error| Failure::new(FAILED, "bench", error.to_string()))??;
        let took = Moment::now().since(from);
        lead.resign().await?;
        client.close().await;
        Ok(took)
    }

    /// Starts a process that leads until it is ended.
    fn worker(&self, daemon: &Server, name: &str) -> Result<Worker, Failure> {
        let ttl = humantime::format_duration(self.ttl).to_string();
        let log = daemon.dir().join("worker.log");
        let child = Command::new(std::env::current_exe()?)
            .args(["--endpoint", &daemon.endpoint, "elect", name, "--ttl", &ttl])
            .args(["--value", "worker", "--", "sh", "-c", WORK])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        Ok(Worker { child, log })
    }
}

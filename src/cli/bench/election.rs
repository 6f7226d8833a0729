//! `bench election`: how long until the next one leads, beside what is
//! promised.

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

/// What is promised beyond the ttl when a client dies.
const NOTICE: Duration = Duration::from_millis(200);

/// What is promised when a leader of the same daemon hands over.
const HAND_OVER: Duration = Duration::from_millis(100);

/// The shortest leases, so that a dead daemon is noticed soonest.
const DURATION: Duration = Duration::from_secs(15);

/// How long the worker may take to lead, and the candidate to be in its turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// The worker's command, which is more than one process.
const WORK: &str = "sleep 1000 & wait";

/// As much of what a worker has written is told.
const LONGEST_TAIL: usize = 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = "Starts two daemons, lets a worker (`leasehold elect`) lead at one, and a \
candidate wait at the same or at the other, ends the leader in different ways, and measures the \
time until the candidate leads. Arguments after -- are for the daemons. On a store that daemons do \
not share, only one daemon is used.

Ends with 1 if something took longer than is promised.

Examples:
  leasehold bench election
  LEASEHOLD_AZURE_CONNECTION_STRING=UseDevelopmentStorage=true \\
    leasehold bench election -- --store azure")]
pub(super) struct Election {
    /// How often each is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The ttl of the leader's session
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// The longest wait between two looks at another daemon's lease
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    poll_interval: Duration,
    /// For the daemons
    #[arg(last = true, value_name = "ARGUMENT")]
    serve: Vec<String>,
}

/// How a leader ends.
#[derive(Clone, Copy)]
enum End {
    /// Its process is killed; its daemon lives.
    ClientKilled,
    /// Its process is asked to stop.
    ClientStopped,
    /// Its daemon is killed.
    DaemonKilled,
    /// Its daemon is asked to stop.
    DaemonStopped,
}

/// A way to lose a leader, where the candidate is, and how long it may take.
struct Case {
    what: &'static str,
    end: End,
    elsewhere: bool,
    promised: Duration,
}

/// A worker that leads. Killed when this is dropped.
struct Worker {
    child: Child,
    /// What it has written to standard error.
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

    /// Waits until something is so, as long as the worker lives, and not for
    /// ever.
    async fn until(
        &mut self,
        what: &str,
        mut is_so: impl AsyncFnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let limit = Moment::now() + PATIENCE;
        while !is_so().await? {
            if let Some(ended) = self.child.try_wait()? {
                return Err(self.failure(&format!("the worker ended ({ended}) before {what}")));
            }
            if limit.has_passed() {
                let limit = humantime::format_duration(PATIENCE);
                return Err(self.failure(&format!("waited {limit} in vain until {what}")));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn failure(&self, why: &str) -> Failure {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(LONGEST_TAIL)..]);
        let message = match tail.trim() {
            "" => format!("{why}; the worker said nothing"),
            tail => format!("{why}; the worker said: {tail}"),
        };
        Failure::new(FAILED, "bench", message)
    }
}

impl Election {
    pub(super) async fn run(self, output: Output) -> Result<ExitCode, Failure> {
        let mut kept = true;
        if output == Output::Text {
            line(format_args!(
                "{:<46}{:>10}{:>10}{:>10}",
                "until the next one leads", "median", "longest", "promised"
            ))?;
        }
        for case in self.cases(self.is_shared().await?) {
            let mut times = Vec::new();
            for round in 0..self.rounds {
                times.push(self.measure(&case, round).await?);
                if output == Output::Text {
                    note(format_args!("{}: {} of {}", case.what, round + 1, self.rounds));
                }
            }
            times.sort_unstable();
            let median = times.get(times.len() / 2).copied().unwrap_or_default();
            let longest = times.last().copied().unwrap_or_default();
            kept &= longest <= case.promised;
            let (what, promised) = (case.what, case.promised);
            match output {
                Output::Text => line(format_args!(
                    "{what:<46}{:>8.2} s{:>8.2} s{:>8.2} s",
                    median.as_secs_f64(),
                    longest.as_secs_f64(),
                    promised.as_secs_f64()
                ))?,
                Output::Json => line(json!({
                    "what": what, "median_ms": median.as_millis() as u64,
                    "longest_ms": longest.as_millis() as u64,
                    "promised_ms": promised.as_millis() as u64,
                }))?,
            }
        }
        Ok(ExitCode::from(if kept { 0 } else { FAILED }))
    }

    /// Whether the daemons share a store, however they are told to.
    async fn is_shared(&self) -> Result<bool, Failure> {
        let daemon = self.daemon("asked")?;
        let client = Client::connect(&daemon.endpoint).await?;
        let stored = client.inspect_stored("bench").await?;
        client.close().await;
        Ok(stored.store.starts_with("azure"))
    }

    fn cases(&self, is_shared: bool) -> Vec<Case> {
        let case = |what, end, elsewhere, promised| Case { what, end, elsewhere, promised };
        let mut cases = vec![
            case("leader killed, same daemon", End::ClientKilled, false, self.ttl + NOTICE),
            case("leader stopped, same daemon", End::ClientStopped, false, HAND_OVER),
        ];
        if is_shared {
            let poll = self.poll_interval;
            // A margin of a second or 5 % is within the duration already.
            let expired = DURATION + poll + Duration::from_secs(1);
            cases.extend([
                case(
                    "leader killed, other daemon",
                    End::ClientKilled,
                    true,
                    self.ttl + NOTICE + poll,
                ),
                case("leader stopped, other daemon", End::ClientStopped, true, poll + HAND_OVER),
                case(
                    "its daemon stopped, other daemon",
                    End::DaemonStopped,
                    true,
                    poll + HAND_OVER,
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

    /// From the end of the leader to the candidate's lead.
    async fn measure(&self, case: &Case, round: usize) -> Result<Duration, Failure> {
        let name = format!("bench-{}-{}-{round}", std::process::id(), case.what.replace(' ', "-"));
        let leaders = self.daemon("leaders")?;
        let others = if case.elsewhere { Some(self.daemon("others")?) } else { None };
        let mut worker = self.worker(&leaders, &name)?;
        let candidates = others.as_ref().unwrap_or(&leaders);
        let client = Client::connect(&candidates.endpoint).await?;
        let election = client.election(&name);
        worker.until("it leads", async || Ok(election.leader().await?.leader.is_some())).await?;
        let candidate = tokio::spawn(client.election(&name).campaign("candidate").into_future());
        worker
            .until("the candidate waits", async || Ok(election.leader().await?.candidates > 0))
            .await?;
        // As late as it gets: the waits between polls have grown by then.
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

    /// A process that leads until it is ended.
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

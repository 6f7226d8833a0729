//! `bench cycle`: lock and unlock with a daemon, compared with the floor.

use std::{process::ExitCode, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{sync::Barrier, task::JoinSet};

use super::{
    server::Server,
    stream::{Stream, connect},
};
use crate::cli::{exit::FAILED, exit::Failure, output::Output, output::line};
use leasehold_time::Moment;

#[derive(Debug, clap::Args)]
#[command(after_help = "Each round measures the daemon and the floor one after the other; the \
table has the medians of the rounds. The floor is a server that answers the same messages on the \
same kind of stream and keeps no locks. A cycle is one lock and one unlock: two messages each way.

Examples:
  leasehold bench cycle --spawn
  leasehold --endpoint unix:/run/leasehold.sock bench cycle --rounds 9")]
pub(super) struct Cycle {
    /// Start a daemon instead of using the one at --endpoint
    #[arg(long)]
    spawn: bool,
    /// Threads of the started daemon
    #[arg(long, default_value_t = 1, requires = "spawn")]
    threads: usize,
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: u32,
    /// Duration of each measurement
    #[arg(long, default_value = "2s", value_parser = crate::cli::times::parse_duration)]
    length: Duration,
}

/// Result of one measurement.
#[derive(Clone, Default)]
struct Found {
    cycles: u64,
    took: Duration,
    /// Durations of single cycles, sorted.
    latencies: Vec<Duration>,
    /// Maximum and minimum number of cycles of a worker.
    spread: (u64, u64),
    cpu: Option<Duration>,
}

impl Found {
    fn rate(&self) -> f64 {
        self.cycles as f64 / self.took.as_secs_f64()
    }

    fn median(&self) -> f64 {
        self.latencies
            .get(self.latencies.len() / 2)
            .map_or(0.0, |length| length.as_secs_f64() * 1e6)
    }

    fn cpu_per_cycle(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() * 1e6 / self.cycles as f64)
    }

    fn fairness(&self) -> f64 {
        self.spread.0 as f64 / self.spread.1.max(1) as f64
    }
}

/// Server that is measured.
struct Target {
    endpoint: String,
    /// Process of the server, if it was started here: its CPU time can be read.
    server: Option<Server>,
}

impl Cycle {
    pub(super) async fn run(self, endpoint: &str, output: Output) -> Result<ExitCode, Failure> {
        let daemon = if self.spawn {
            let threads = ["--threads".to_owned(), self.threads.to_string()];
            let server = Server::daemon("daemon", false, &threads)?;
            Target { endpoint: server.endpoint.clone(), server: Some(server) }
        } else {
            Target { endpoint: endpoint.to_owned(), server: None }
        };
        connect(&daemon.endpoint).await?;
        let server = Server::floor(daemon.endpoint.starts_with("unix:"))?;
        let floor = Target { endpoint: server.endpoint.clone(), server: Some(server) };

        let mut rows = [const { (Vec::new(), Vec::new()) }; 3];
        for round in 0..self.rounds {
            for (number, (workers, shared)) in
                [(1, false), (64, false), (16, true)].into_iter().enumerate()
            {
                let (ours, floors) = &mut rows[number];
                ours.push(self.measure(&daemon, workers, shared).await?);
                if !shared {
                    floors.push(self.measure(&floor, workers, shared).await?);
                }
            }
            if output == Output::Text {
                crate::cli::output::note(format_args!("round {} of {}", round + 1, self.rounds));
            }
        }
        report(output, &rows)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Runs workers that lock and unlock until the time is over, each with its own
    /// session. They use different names, or all the same one if `shared`.
    async fn measure(
        &self,
        target: &Target,
        workers: usize,
        shared: bool,
    ) -> Result<Found, Failure> {
        let channel = connect(&target.endpoint).await?;
        let barrier = Arc::new(Barrier::new(workers + 1));
        let mut tasks = JoinSet::new();
        for worker in 0..workers {
            let mut stream = Stream::open(&channel, 60_000).await?;
            let (barrier, length) = (Arc::clone(&barrier), self.length);
            let name = if shared { "one".to_owned() } else { format!("own-{worker}") };
            tasks.spawn(async move {
                barrier.wait().await;
                let end = Moment::now() + length;
                let mut latencies = Vec::new();
                let mut now = Moment::now();
                while now < end {
                    let (handle, _) = stream.acquire(&name).await?;
                    stream.release(handle).await?;
                    let after = Moment::now();
                    latencies.push(after.since(now));
                    now = after;
                }
                Ok::<_, Failure>(latencies)
            });
        }
        barrier.wait().await;
        let (start, cpu) = (Moment::now(), target.cpu()?);
        let mut found = Found { spread: (0, u64::MAX), ..Found::default() };
        while let Some(worker) = tasks.join_next().await {
            let latencies =
                worker.map_err(|error| Failure::new(FAILED, "bench", error.to_string()))??;
            let cycles = latencies.len() as u64;
            found.cycles += cycles;
            found.spread = (found.spread.0.max(cycles), found.spread.1.min(cycles));
            found.latencies.extend(latencies);
        }
        found.took = Moment::now().since(start);
        found.latencies.sort_unstable();
        found.cpu = target.cpu()?.zip(cpu).map(|(after, before)| after - before);
        Ok(found)
    }
}

impl Target {
    fn cpu(&self) -> Result<Option<Duration>, Failure> {
        self.server.as_ref().filter(|_| cfg!(target_os = "linux")).map(Server::cpu).transpose()
    }
}

fn median(found: &[Found], value: impl Fn(&Found) -> f64) -> f64 {
    let mut values: Vec<_> = found.iter().map(value).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn report(output: Output, rows: &[(Vec<Found>, Vec<Found>); 3]) -> Result<(), Failure> {
    let [(one, one_floor), (many, many_floor), (shared, _)] = rows;
    let cpu = |found: &[Found]| {
        found
            .iter()
            .all(|found| found.cpu.is_some())
            .then(|| median(found, |found| found.cpu_per_cycle().unwrap_or_default()))
    };
    let (p50, p50_floor) = (median(one, Found::median), median(one_floor, Found::median));
    let (rate, rate_floor) = (median(many, Found::rate), median(many_floor, Found::rate));
    let (handoffs, fairness) = (median(shared, Found::rate), median(shared, Found::fairness));
    let (cpu, cpu_floor) = (cpu(many), cpu(many_floor));
    let cpu_ratio = cpu.zip(cpu_floor).map(|(ours, floor)| ours / floor);
    if output == Output::Json {
        line(json!({
            "rounds": one.len(),
            "one_worker": {
                "cycle_p50_us": p50, "floor_p50_us": p50_floor, "ratio": p50 / p50_floor,
            },
            "workers_64": {
                "cycles_per_second": rate, "floor_per_second": rate_floor,
                "ratio": rate / rate_floor,
                "cpu_us_per_cycle": cpu, "floor_cpu_us_per_cycle": cpu_floor,
                "cpu_ratio": cpu_ratio,
            },
            "contended_16": { "handoffs_per_second": handoffs, "max_by_min": fairness },
        }))?;
        return Ok(());
    }
    let text =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let ratio = cpu_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let row = |name: &str, ours: &str, floor: &str, ratio: &str| {
        line(format_args!("{name:<46}{ours:>12}{floor:>12}{ratio:>9}"))
    };
    row("", "leasehold", "floor", "ratio")?;
    row(
        "1 worker: cycle p50, µs",
        &format!("{p50:.1}"),
        &format!("{p50_floor:.1}"),
        &format!("{:.2}", p50 / p50_floor),
    )?;
    row(
        "64 workers, own names: cycles/s",
        &format!("{rate:.0}"),
        &format!("{rate_floor:.0}"),
        &format!("{:.2}", rate / rate_floor),
    )?;
    row("64 workers, own names: server CPU µs/cycle", &text(cpu), &text(cpu_floor), &ratio)?;
    row("16 workers, one name: handoffs/s", &format!("{handoffs:.0}"), "-", "-")?;
    row("16 workers, one name: max ÷ min", &format!("{fairness:.3}"), "-", "-")?;
    Ok(())
}

//! Benchmarks. Each prints the measured and the expected values in one table.

mod cycle;
mod election;
mod floor;
mod hold;
mod server;
mod storage;
mod stream;

use std::process::ExitCode;

use clap::Subcommand;

use super::{
    exit::Failure,
    options::{EndpointOption, OutputOption},
};

/// Measures a daemon. Absolute numbers depend on the machine: compare the ratios.
#[derive(Debug, clap::Args)]
pub(super) struct Bench {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Lock and unlock, compared with an echo on the same kind of stream
    Cycle(OnDaemon<cycle::Cycle>),
    /// Memory and CPU of many held locks and many sessions
    Hold(Reported<hold::Hold>),
    /// Storage calls: for a grant, a handoff, a release, and to keep many leases
    Storage(OnDaemon<storage::Storage>),
    /// Time until the next candidate leads, after a leader has ended
    Election(Reported<election::Election>),
    /// Answers every message on a session stream, and does nothing else
    #[command(hide = true)]
    Floor(floor::Floor),
}

/// A benchmark with an output format.
#[derive(Debug, clap::Args)]
struct Reported<T: clap::Args> {
    #[command(flatten)]
    bench: T,
    #[command(flatten)]
    output: OutputOption,
}

/// A benchmark of a running daemon.
#[derive(Debug, clap::Args)]
struct OnDaemon<T: clap::Args> {
    #[command(flatten)]
    bench: T,
    #[command(flatten)]
    daemon: EndpointOption,
    #[command(flatten)]
    output: OutputOption,
}

impl Bench {
    /// Returns whether the benchmark is a client of a daemon.
    pub(super) const fn uses_daemon(&self) -> bool {
        !matches!(self.benchmark, Benchmark::Floor(_))
    }

    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        match self.benchmark {
            Benchmark::Cycle(on) => on.bench.run(&on.daemon.endpoint(), on.output.output).await,
            Benchmark::Hold(on) => on.bench.run(on.output.output).await,
            Benchmark::Storage(on) => on.bench.run(&on.daemon.endpoint(), on.output.output).await,
            Benchmark::Election(on) => on.bench.run(on.output.output).await,
            Benchmark::Floor(floor) => floor.run().await,
        }
    }
}

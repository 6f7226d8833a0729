//! Benchmarks that print what they compare side by side.

mod cycle;
mod election;
mod floor;
mod hold;
mod server;
mod storage;
mod stream;

use std::process::ExitCode;

use clap::Subcommand;

use super::{Globals, exit::Failure};

/// Measures a daemon. Machines are noisy: look at the ratios.
#[derive(Debug, clap::Args)]
pub(super) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lock + unlock, beside an echo on the same kind of stream
    Cycle(cycle::Cycle),
    /// Memory and CPU of many held locks and many sessions
    Hold(hold::Hold),
    /// Calls to the storage: for a grant, a hand-over, a release, and to keep
    /// many leases
    Storage(storage::Storage),
    /// How long until the next one leads, after a leader has ended
    Election(election::Election),
    /// Answers every message on a session stream, and does nothing else
    #[command(hide = true)]
    Floor(floor::Floor),
}

impl Bench {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self.what {
            What::Cycle(cycle) => cycle.run(globals).await,
            What::Hold(hold) => hold.run(globals).await,
            What::Storage(storage) => storage.run(globals).await,
            What::Election(election) => election.run(globals).await,
            What::Floor(floor) => floor.run().await,
        }
    }
}

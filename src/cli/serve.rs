//! `serve`: the daemon.

use std::process::ExitCode;

use clap::ArgMatches;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};

use super::{
    configuration::Configuration,
    exit::{FAILED, Failure},
    output::{Output, line, offer},
    process::StopSignals,
};
use crate::{config::Config, daemon::Daemon, telemetry};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Settings come from the file, the environment (LEASEHOLD_<KEY>) and flags, \
in rising precedence; the file's keys are the flags with underscores. Secrets are best given by \
the environment, and are never shown. Once it can be reached, one \
line \"listening on ADDRESS\" per listener is written to standard output, then one line \
\"listening for HTTP on ADDRESS\" per HTTP listener.

The first SIGTERM or SIGINT drains: nothing more is granted, holders are told and waited for, then \
it ends with 0. A second one stops it at once, and the next start has to wait until no holder can \
still believe in its grant.

Exit codes:
  0    stopped after draining; with --check: the configuration is valid
  1    could not start, failed, or was stopped at once
  64   the command line is wrong
  78   the configuration has mistakes; all of them are listed

Examples:
  leasehold serve
  leasehold serve --listen unix:/run/leasehold.sock --data-dir /var/lib/leasehold
  leasehold serve --store azure --azure-account-url https://ACCOUNT.blob.core.windows.net
  LEASEHOLD_AZURE_CONNECTION_STRING=UseDevelopmentStorage=true leasehold serve --store azure
  leasehold serve --config leasehold.toml --check"
)]
pub(super) struct Serve {
    /// Only check the configuration and show what would be in effect
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    configuration: Configuration,
}

impl Serve {
    /// Runs the daemon. `matches` tells flags from the environment.
    pub(super) fn run(self, matches: &ArgMatches, output: Output) -> Result<ExitCode, Failure> {
        let effective = self.configuration.load(matches)?;
        if self.check {
            match output {
                Output::Text => line(effective.to_toml().trim_end())?,
                Output::Json => line(effective.to_json())?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let config = effective.config;
        telemetry::init(&config).map_err(|error| Failure::new(FAILED, "telemetry", error))?;
        let runtime = runtime(config.threads)?;
        let ended = runtime.block_on(serve(config));
        // A write that hangs must not keep a daemon that was told to stop.
        runtime.shutdown_background();
        ended
    }
}

fn runtime(threads: usize) -> Result<Runtime, Failure> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    // Ignored by the runtime of one thread.
    builder.worker_threads(threads);
    Ok(builder.enable_all().build()?)
}

async fn serve(config: Config) -> Result<ExitCode, Failure> {
    // Before the daemon binds, so that no signal finds it unprepared.
    let stops = count_stops()?;
    let daemon =
        Daemon::bind(config).await.map_err(|error| Failure::new(FAILED, "daemon", error))?;
    for address in daemon.addresses() {
        // The daemon serves also if nobody reads its output.
        offer(format_args!("listening on {address}"))?;
    }
    for address in daemon.http_addresses() {
        offer(format_args!("listening for HTTP on {address}"))?;
    }
    match daemon.run(reached(stops.clone(), 1), reached(stops, 2)).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            tracing::error!("{error}");
            Ok(ExitCode::from(FAILED))
        }
    }
}

/// How many signals have asked the daemon to stop.
fn count_stops() -> Result<watch::Receiver<u32>, Failure> {
    let mut signals = StopSignals::listen()?;
    let (sender, receiver) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            signals.next().await;
            sender.send_modify(|count| *count += 1);
        }
    });
    Ok(receiver)
}

async fn reached(mut stops: watch::Receiver<u32>, count: u32) {
    // The sender lives as long as the runtime.
    if stops.wait_for(|seen| *seen >= count).await.is_err() {
        std::future::pending::<()>().await;
    }
}

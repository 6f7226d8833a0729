//! `serve`: the daemon.

use std::process::ExitCode;

use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};

use super::{
    configuration::Configuration,
    exit::{FAILED, Failure},
    options::OutputOption,
    output::{Output, line, offer},
    palette::is_log_colored,
    process::StopSignals,
};
use crate::{
    config::{Config, Effective},
    daemon::Daemon,
    telemetry,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Settings come from the file, the environment (LEASEHOLD_<KEY>) and flags, \
in increasing precedence; the file's keys are the flags with underscores. Give secrets by \
environment variable or file; they are never printed. A variable LEASEHOLD_<…> that is no setting \
is reported as a warning.

Once the daemon accepts connections, it writes one line \"listening on ADDRESS\" per listener to \
standard output, then one line \"listening for HTTP on ADDRESS\" per HTTP listener. Its log goes to \
standard error.

The first SIGTERM or SIGINT drains: the daemon stops granting, notifies all holders and waits for \
their releases, then exits with 0. A second one exits immediately; the next start then has to wait \
until no earlier grant can still be valid.

Exit codes:
  0    exited after draining; with --check: the configuration is valid
  1    could not start, failed, or was stopped by a second signal
  64   usage error
  78   invalid configuration; all errors are listed

Examples:
  leasehold serve
  leasehold serve --listen unix:/run/leasehold.sock --data-dir /var/lib/leasehold
  leasehold serve --store azure --azure-account-url https://ACCOUNT.blob.core.windows.net
  LEASEHOLD_AZURE_CONNECTION_STRING=UseDevelopmentStorage=true leasehold serve --store azure
  leasehold serve --config leasehold.toml --check"
)]
pub(super) struct Serve {
    /// Check the configuration, print the effective values with their sources, and exit
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    configuration: Configuration,
    #[command(flatten)]
    output: OutputOption,
}

impl Serve {
    /// Runs the daemon.
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let output = self.output.output;
        let effective = self.configuration.load()?;
        if self.check {
            effective.warnings.iter().for_each(|warning| output.note(warning));
            match output {
                Output::Text => line(effective.to_toml().trim_end())?,
                Output::Json => line(effective.to_json())?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let Effective { config, warnings, .. } = effective;
        telemetry::init(&config, is_log_colored())
            .map_err(|error| Failure::new(FAILED, "telemetry", error))?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
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

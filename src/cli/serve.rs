//! `serve`: runs the daemon.

mod reload;

use std::process::ExitCode;

use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};

use super::{
    configuration::Configuration,
    exit::{FAILED, Failure},
    options::OutputOption,
    output::{Output, line, optional_line},
    palette::is_log_colored,
    process::StopSignals,
};
use crate::{
    config::{Config, Effective},
    daemon::{self, Daemon},
    telemetry::{self, otlp::Otlp},
};
use reload::Reload;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Settings come from the file, the environment (LEASEHOLD_<KEY>) and flags, \
in increasing precedence; the file's keys are the flags with underscores. Give secrets by \
environment variable or file; they are never printed. An unknown variable \
LEASEHOLD_<…> is reported as a warning.

Once the daemon accepts connections, it writes one line \"listening on ADDRESS\" per listener to \
standard output, then one line \"listening for HTTP on ADDRESS\" per HTTP listener. Its log goes to \
standard error.

The first SIGTERM or SIGINT drains: the daemon stops granting, notifies all holders and waits for \
their releases, then exits with 0. A second one exits immediately; the next start then has to wait \
until no earlier grant can still be valid.

SIGHUP reads the configuration again and applies the log filter. Other settings need a restart.

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
        let effective = self.configuration.clone().load()?;
        if self.check {
            effective.warnings.iter().for_each(|warning| output.note(warning));
            match output {
                Output::Text => line(effective.to_toml().trim_end())?,
                Output::Json => line(effective.to_json())?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let Effective { config, mut warnings, .. } = effective;
        let problem = |error| Failure::new(FAILED, "telemetry", error);
        let otlp = Otlp::start().map_err(|why| problem(why.into()))?;
        warnings.extend(otlp.iter().flat_map(|otlp| otlp.settings().warnings.clone()));
        let filter = telemetry::init(&config, is_log_colored(), otlp.as_ref()).map_err(problem)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let runtime = runtime(config.threads)?;
        let reload = Reload { configuration: self.configuration, filter, active: config.clone() };
        let ended = runtime.block_on(serve(config, reload, otlp.as_ref()));
        // A blocked write must not delay the exit of a stopped daemon.
        runtime.shutdown_background();
        let is_aborted = ended.as_ref().is_ok_and(|ended| ended.is_aborted);
        otlp.into_iter().for_each(if is_aborted { Otlp::abort } else { Otlp::shutdown });
        ended.map(|ended| ended.code)
    }
}

fn runtime(threads: usize) -> Result<Runtime, Failure> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    // Has no effect on the single-threaded runtime.
    builder.worker_threads(threads);
    Ok(builder.enable_all().build()?)
}

/// End of a daemon.
struct Ended {
    code: ExitCode,
    /// True if a second signal stopped the daemon immediately.
    is_aborted: bool,
}

async fn serve(config: Config, reload: Reload, otlp: Option<&Otlp>) -> Result<Ended, Failure> {
    // Before binding, so that no signal kills a daemon that accepts connections.
    let stop_count = count_stop_signals()?;
    reload.on_hangup()?;
    let daemon =
        Daemon::bind(config, otlp).await.map_err(|error| Failure::new(FAILED, "daemon", error))?;
    for address in daemon.addresses() {
        // The daemon also runs if its output is closed.
        optional_line(format_args!("listening on {address}"))?;
    }
    for address in daemon.http_addresses() {
        optional_line(format_args!("listening for HTTP on {address}"))?;
    }
    match daemon.run(reached(stop_count.clone(), 1), reached(stop_count, 2)).await {
        Ok(()) => Ok(Ended { code: ExitCode::SUCCESS, is_aborted: false }),
        Err(error) => {
            tracing::error!("{error}");
            let is_aborted = matches!(error, daemon::Error::Aborted);
            Ok(Ended { code: ExitCode::from(FAILED), is_aborted })
        }
    }
}

/// Counts the signals that stop the daemon.
fn count_stop_signals() -> Result<watch::Receiver<u32>, Failure> {
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

/// Waits until `count` signals have arrived.
async fn reached(mut stop_count: watch::Receiver<u32>, count: u32) {
    // The sender lives as long as the runtime.
    if stop_count.wait_for(|arrived| *arrived >= count).await.is_err() {
        std::future::pending::<()>().await;
    }
}

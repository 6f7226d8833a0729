//! Health checks of the command: probes, and the progress file.

use std::{ffi::OsString, num::NonZeroU32, time::Duration};

use clap::ArgGroup;
use leasehold_client::Leadership;

use super::{
    probe::{CommandProbe, GrpcProbe, HttpProbe, Probe, Timing},
    progress::ProgressFile,
};
use crate::cli::{exit::Failure, options::parse_count};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Health")]
#[command(group = ArgGroup::new("probe").multiple(true))]
#[group(skip)]
pub(super) struct Health {
    /// Probe by HTTP GET; healthy on status 2xx or 3xx: http://HOST[:PORT][/PATH]
    #[arg(long, value_name = "URL", group = "probe")]
    probe_http: Option<HttpProbe>,
    /// Probe by grpc.health.v1; healthy on SERVING: [http://]HOST:PORT[/SERVICE]
    #[arg(long, value_name = "ENDPOINT", group = "probe")]
    probe_grpc: Option<GrpcProbe>,
    /// Probe by `sh -c COMMAND` with the environment of the command; healthy on exit code 0
    #[arg(long, value_name = "COMMAND", group = "probe")]
    probe_command: Option<CommandProbe>,
    /// Interval between probes
    #[arg(long, value_name = "TIME", value_parser = positive_duration, requires = "probe")]
    #[arg(default_value = "10s")]
    probe_interval: Duration,
    /// Timeout of one probe
    #[arg(long, value_name = "TIME", value_parser = positive_duration, requires = "probe")]
    #[arg(default_value = "5s")]
    probe_timeout: Duration,
    /// Number of consecutive failures after which the command is unhealthy
    #[arg(long, value_name = "COUNT", value_parser = parse_count::<NonZeroU32>)]
    #[arg(requires = "probe", default_value = "3")]
    probe_threshold: NonZeroU32,
    /// Ignore probe failures for this long after the command starts
    #[arg(long, value_name = "TIME", value_parser = crate::cli::times::parse_duration)]
    #[arg(requires = "probe", default_value = "0s")]
    probe_grace: Duration,
    /// Maximum time between two touches of $LEASEHOLD_PROGRESS_FILE by the command; it counts as
    /// stuck after that (the file is in $TMPDIR, or in /tmp)
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    progress_timeout: Option<Duration>,
}

/// Monitors one run of the command.
#[derive(Debug)]
pub(super) struct Monitor<'a> {
    health: &'a Health,
    progress: Option<ProgressFile>,
}

impl Health {
    /// Creates the monitor of the next run.
    pub(super) fn monitor(&self) -> Result<Monitor<'_>, Failure> {
        let progress = self.progress_timeout.map(ProgressFile::create).transpose()?;
        Ok(Monitor { health: self, progress })
    }

    const fn timing(&self) -> Timing {
        Timing {
            interval: self.probe_interval,
            timeout: self.probe_timeout,
            threshold: self.probe_threshold,
            grace: self.probe_grace,
        }
    }
}

impl Monitor<'_> {
    /// Returns the environment variable for the command.
    pub(super) fn environment(&self) -> Option<(&'static str, OsString)> {
        let file = self.progress.as_ref()?;
        Some(("LEASEHOLD_PROGRESS_FILE", file.path().into()))
    }

    /// Waits until the command is unhealthy or stuck, and returns the cause as text.
    pub(super) async fn unhealthy(
        &self,
        leadership: &Leadership,
        environment: &[(&'static str, OsString)],
    ) -> String {
        let Health { probe_http, probe_grpc, probe_command, .. } = self.health;
        let timing = self.health.timing();
        let mut environment = environment.to_vec();
        environment.push(("LEASEHOLD_LOCK", leadership.name().into()));
        environment.push(("LEASEHOLD_NAMESPACE", leadership.namespace().into()));
        environment.push(("LEASEHOLD_TOKEN", leadership.token().to_string().into()));
        let command = probe_command
            .as_ref()
            .map(|probe| probe.with_environment(&environment, timing.timeout));
        tokio::select! {
            cause = watch(probe_http.as_ref(), timing) => cause,
            cause = watch(probe_grpc.as_ref(), timing) => cause,
            cause = watch(command.as_ref(), timing) => cause,
            cause = stuck(self.progress.as_ref()) => cause,
        }
    }
}

async fn watch(probe: Option<&impl Probe>, timing: Timing) -> String {
    match probe {
        Some(probe) => timing.watch(probe).await,
        None => std::future::pending().await,
    }
}

async fn stuck(progress: Option<&ProgressFile>) -> String {
    match progress {
        Some(progress) => progress.stuck().await,
        None => std::future::pending().await,
    }
}

fn positive_duration(text: &str) -> Result<Duration, &'static str> {
    match crate::cli::times::parse_duration(text)? {
        Duration::ZERO => Err("must be longer than 0s"),
        duration => Ok(duration),
    }
}

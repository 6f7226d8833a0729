//! Whether the command does its work: probes, and signs of progress.

use std::{ffi::OsString, num::NonZeroU32, time::Duration};

use clap::ArgGroup;
use leasehold_client::Leadership;

use super::{
    probe::{CommandProbe, GrpcProbe, HttpProbe, Probe, Timing},
    progress::ProgressFile,
};
use crate::cli::exit::Failure;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Health")]
#[command(group = ArgGroup::new("probe").multiple(true))]
#[group(skip)]
pub(super) struct Health {
    /// Healthy if a GET is answered with 2xx or 3xx: http://HOST[:PORT][/PATH]
    #[arg(long, value_name = "URL", group = "probe")]
    probe_http: Option<HttpProbe>,
    /// Healthy if grpc.health.v1 answers SERVING: [http://]HOST:PORT[/SERVICE]
    #[arg(long, value_name = "ENDPOINT", group = "probe")]
    probe_grpc: Option<GrpcProbe>,
    /// Healthy if `sh -c COMMAND` ends with 0; it sees what the command sees
    #[arg(long, value_name = "COMMAND", group = "probe")]
    probe_command: Option<CommandProbe>,
    /// Interval between probes
    #[arg(long, value_name = "TIME", value_parser = length, requires = "probe")]
    #[arg(default_value = "10s")]
    probe_interval: Duration,
    /// Timeout of one probe
    #[arg(long, value_name = "TIME", value_parser = length, requires = "probe")]
    #[arg(default_value = "5s")]
    probe_timeout: Duration,
    /// Number of consecutive failures after which the command is unhealthy
    #[arg(long, value_name = "COUNT", requires = "probe", default_value = "3")]
    probe_threshold: NonZeroU32,
    /// Ignore probe failures for this long after the command starts
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    #[arg(requires = "probe", default_value = "0s")]
    probe_grace: Duration,
    /// Maximum time between two touches of $LEASEHOLD_PROGRESS_FILE by the command, before it is
    /// stuck; the file is in $TMPDIR, or in /tmp
    #[arg(long, value_name = "TIME", value_parser = length)]
    progress_timeout: Option<Duration>,
}

/// Watches over one run of the command.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    health: &'a Health,
    progress: Option<ProgressFile>,
}

impl Health {
    /// For a run that is about to begin.
    pub(super) fn begin(&self) -> Result<Watch<'_>, Failure> {
        let progress = self.progress_timeout.map(ProgressFile::create).transpose()?;
        Ok(Watch { health: self, progress })
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

impl Watch<'_> {
    /// What the command needs to know.
    pub(super) fn environment(&self) -> Option<(&'static str, OsString)> {
        let file = self.progress.as_ref()?;
        Some(("LEASEHOLD_PROGRESS_FILE", file.path().into()))
    }

    /// Waits until the command is unhealthy or stuck; says so, for people.
    pub(super) async fn unhealthy(
        &self,
        leadership: &Leadership,
        environment: &[(&'static str, OsString)],
    ) -> String {
        let Health { probe_http, probe_grpc, probe_command, .. } = self.health;
        let timing = self.health.timing();
        let mut seen = environment.to_vec();
        seen.push(("LEASEHOLD_LOCK", leadership.name().into()));
        seen.push(("LEASEHOLD_NAMESPACE", leadership.namespace().into()));
        seen.push(("LEASEHOLD_TOKEN", leadership.token().to_string().into()));
        let command = probe_command.as_ref().map(|probe| probe.seeing(&seen, timing.timeout));
        tokio::select! {
            why = watch(probe_http.as_ref(), timing) => why,
            why = watch(probe_grpc.as_ref(), timing) => why,
            why = watch(command.as_ref(), timing) => why,
            why = stuck(self.progress.as_ref()) => why,
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

fn length(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than nothing".to_owned()),
        Ok(length) => Ok(length),
        Err(error) => Err(error.to_string()),
    }
}

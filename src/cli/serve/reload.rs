//! Changes of the configuration of a running daemon: the log filter, on SIGHUP.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cli::configuration::Configuration,
    config::{Config, SETTINGS},
    telemetry::LogFilter,
};

/// Source of the configuration, and its parts that can be changed.
pub(super) struct Reload {
    pub(super) configuration: Configuration,
    pub(super) filter: LogFilter,
    /// Effective values of the running daemon.
    pub(super) active: Config,
}

impl Reload {
    /// Reads the configuration again on each SIGHUP, for the life of the process.
    pub(super) fn on_hangup(mut self) -> io::Result<()> {
        let mut hangups = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                self.apply();
            }
        });
        Ok(())
    }

    /// Applies the log filter. An invalid configuration changes nothing.
    fn apply(&mut self) {
        let config = match self.configuration.clone().read() {
            Ok(effective) => effective.config,
            Err(errors) => {
                return tracing::error!("configuration not read again, nothing changed: {errors}");
            }
        };
        if let Err(error) = self.filter.set(&config.log) {
            return tracing::error!(%error, "log filter not changed");
        }
        self.active.log = config.log.clone();
        tracing::info!(log = config.log, "configuration read again");
        let differs = |setting: &&crate::config::Setting| {
            setting.value(&config) != setting.value(&self.active)
        };
        let others: Vec<_> = SETTINGS.iter().filter(differs).map(|setting| setting.key).collect();
        if !others.is_empty() {
            tracing::warn!(settings = others.join(","), "changed settings need a restart");
        }
    }
}

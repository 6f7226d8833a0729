//! The daemon's configuration, for the commands that take it.

use std::{ffi::OsString, path::Path};

use clap::{ArgMatches, parser::ValueSource};

use super::{exit::Failure, settings::SettingFlags};
use crate::config::{self, Effective, Layer, Source};

#[derive(Debug, clap::Args)]
pub(super) struct Configuration {
    /// The configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<OsString>,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Configuration {
    /// From the file, the environment and flags. `matches` tells flags from the
    /// environment.
    pub(super) fn load(self, matches: &ArgMatches) -> Result<Effective, Failure> {
        let mut layers = Vec::new();
        if let Some(path) = self.config.filter(|path| !path.is_empty()) {
            let named_by = match matches.value_source("config") {
                Some(ValueSource::EnvVariable) => Source::Environment("LEASEHOLD_CONFIG".into()),
                _ => Source::Flag("config".into()),
            };
            layers.push(Layer::file(Path::new(&path), &named_by));
        }
        layers.push(Layer::environment(|variable| std::env::var_os(variable)));
        layers.push(self.settings.layer());
        Ok(config::load(layers)?)
    }
}

//! The daemon's configuration, for the commands that take it.

use std::{ffi::OsString, path::Path};

use super::{exit::Failure, settings::SettingFlags};
use crate::config::{self, Effective, Layer, Source};

#[derive(Debug, clap::Args)]
pub(super) struct Configuration {
    /// Configuration file (TOML) [env: LEASEHOLD_CONFIG]
    #[arg(long, short, value_name = "FILE")]
    config: Option<OsString>,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Configuration {
    /// Loads the file, the environment and the flags.
    pub(super) fn load(self) -> Result<Effective, Failure> {
        let mut layers = Vec::new();
        let flag = self.config.map(|path| (path, Source::Flag("config".into())));
        let named = flag.or_else(|| {
            let path = std::env::var_os("LEASEHOLD_CONFIG")?;
            Some((path, Source::Environment("LEASEHOLD_CONFIG".into())))
        });
        if let Some((path, named_by)) = named.filter(|(path, _)| !path.is_empty()) {
            layers.push(Layer::file(Path::new(&path), &named_by));
        }
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let environment = Layer::environment(|variable| std::env::var_os(variable));
        layers.push(environment.with_variables(names));
        layers.push(self.settings.layer());
        Ok(config::load(layers)?)
    }
}

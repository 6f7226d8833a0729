//! Logging, to standard error.

use std::{
    error::Error,
    io::{self, IsTerminal},
};

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging, for the life of the process.
pub fn init(config: &Config) -> Result<(), Box<dyn Error + Send + Sync>> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parse_filter(&config.log)?)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    match config.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
}

/// Reads a filter. A lone word must be a level: the filter language takes any
/// other for a module, and a mistyped level would silence everything.
pub(crate) fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    for directive in text.split(',').map(str::trim) {
        let lone = directive.chars().all(|c| c.is_ascii_alphanumeric());
        if lone && !LEVELS.contains(&directive.to_ascii_lowercase().as_str()) {
            return Err(format!("{directive:?} is not a level"));
        }
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        for good in ["info", "WARN", "off", "info,leasehold::lease=debug", "warn,h2=off"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["", "inof", "info,", "leasehold=loud", "info,leasehold"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}

//! Logging, to standard error.

use std::{error::Error, io};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, filter_fn},
    fmt::MakeWriter,
    layer::{Filter, SubscriberExt as _},
    reload,
    util::SubscriberInitExt as _,
};

use super::otlp::Otlp;
use crate::config::{Config, LogFormat};

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

type BoxedFilter = Box<dyn Filter<Registry> + Send + Sync>;

/// Filter of the log of a running daemon.
#[derive(Clone)]
pub struct LogFilter(reload::Handle<BoxedFilter, Registry>);

impl LogFilter {
    /// Replaces the filter.
    pub fn set(&self, text: &str) -> Result<(), String> {
        self.0.reload(filter(text)?).map_err(|error| error.to_string())
    }
}

/// Starts logging to standard error, for the life of the process. Returns the filter, so
/// that it can be changed.
pub fn init(
    config: &Config,
    ansi: bool,
    otlp: Option<&Otlp>,
) -> Result<LogFilter, Box<dyn Error + Send + Sync>> {
    let exported = otlp.map(Otlp::log_layers).unwrap_or_default();
    let (subscriber, filter) = layers(config, ansi, io::stderr, exported)?;
    subscriber.try_init()?;
    Ok(filter)
}

/// Creates a subscriber that writes log lines to `writer`.
pub fn subscriber<W>(
    config: &Config,
    ansi: bool,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync + use<W>, LogFilter), String>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    layers(config, ansi, writer, Vec::new())
}

/// Creates a subscriber that writes log lines to `writer`, and passes the same events to
/// other layers. The filter applies to these layers only.
fn layers<W>(
    config: &Config,
    ansi: bool,
    writer: W,
    exported: Vec<BoxedLayer>,
) -> Result<(impl Subscriber + Send + Sync + use<W>, LogFilter), String>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(writer);
    let lines: BoxedLayer = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let layers: Vec<BoxedLayer> = std::iter::once(lines).chain(exported).collect();
    let (filter, handle) = reload::Layer::new(filter(&config.log)?);
    Ok((Registry::default().with(layers.with_filter(filter)), LogFilter(handle)))
}

/// Creates the filter for a text, with the conditions that apply to every filter.
fn filter(text: &str) -> Result<BoxedFilter, String> {
    let connections_too = text.contains("h2");
    let wanted = move |metadata: &Metadata<'_>| {
        is_discreet(metadata) && (connections_too || !is_chatter(metadata))
    };
    Ok(Box::new(parse_filter(text)?.and(filter_fn(wanted))))
}

/// Reports whether a peer can cause the event at will, and fill the log. Such events
/// need a filter that names the library.
fn is_chatter(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("h2") && *metadata.level() > Level::ERROR
}

/// Reports whether an event may be logged under any filter. Below warnings, the storage
/// SDK logs the headers of requests, which contain lease IDs, and the exporters log
/// their settings.
fn is_discreet(metadata: &Metadata<'_>) -> bool {
    let sdks = ["azure_", "typespec", "opentelemetry"];
    let sdk = sdks.iter().any(|name| metadata.target().starts_with(name));
    !sdk || *metadata.level() <= Level::WARN
}

/// Parses a filter. A single word must be a level: the filter language takes any other
/// word for a module, so that a misspelled level would disable the log.
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
        for good in ["info", "WARN", "off", "info,leasehold_azure_store=debug", "warn,h2=off"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["", "inof", "info,", "leasehold=loud", "info,leasehold"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}

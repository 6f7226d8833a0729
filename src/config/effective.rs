//! Merges the layers, validates the result and prints it.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    Config, ConfigError, ConfigErrors, Layer, Listen, SETTINGS, Setting, Source, Store,
    layer::written,
};
use leasehold_azure_account::{Address, InvalidSetting};

/// Effective configuration, with the source of each value.
#[derive(Debug)]
pub struct Effective {
    /// Effective values.
    pub config: Config,
    /// Problems that do not prevent a start.
    pub warnings: Vec<String>,
    sources: BTreeMap<&'static str, Source>,
}

/// Merges the layers, later ones taking precedence, and validates the result.
pub fn load(layers: Vec<Layer>) -> Result<Effective, ConfigErrors> {
    let mut effective =
        Effective { config: Config::default(), warnings: Vec::new(), sources: BTreeMap::new() };
    let mut errors = Vec::new();
    for layer in layers {
        errors.extend(layer.errors);
        effective.warnings.extend(layer.warnings);
        if let Some(identity) = layer.identity {
            effective.config.azure.identity = identity;
        }
        for (setting, source, given) in layer.entries {
            let applied = setting.apply(&mut effective.config, &given);
            if let Err(problem) = &applied {
                errors.push(ConfigError {
                    key: setting.key.to_owned(),
                    source: source.to_string(),
                    value: setting.redact(&given),
                    written: Some(setting.written(&given)),
                    problem: problem.clone(),
                });
            }
            // The valid entries of an invalid list are checked further below.
            if applied.is_ok() || setting.is_list() {
                effective.sources.insert(setting.key, source);
            }
        }
    }
    effective.check_together(&mut errors);
    ConfigErrors::from(errors).map_or(Ok(effective), Err)
}

impl Effective {
    /// Returns the source of the value of `key`.
    #[must_use]
    pub fn source(&self, key: &str) -> &Source {
        self.sources.get(key).unwrap_or(&Source::Default)
    }

    /// Validates combinations of settings.
    fn check_together(&mut self, errors: &mut Vec<ConfigError>) {
        let config = &mut self.config;
        if config.default_ttl > config.max_ttl {
            if self.sources.contains_key("default_ttl") {
                let max = humantime::format_duration(config.max_ttl);
                let problem = format!("must be at most max_ttl ({max})");
                errors.push(self.error("default_ttl", problem));
            } else {
                config.default_ttl = config.max_ttl;
            }
        }
        if self.config.lease_duration.subsec_nanos() != 0 {
            let problem = "must be in whole seconds".to_owned();
            errors.push(self.error("lease_duration", problem));
        }
        let Config { listen, http_listen, allow_remote, .. } = &self.config;
        for (key, listeners, access) in [
            ("listen", listen, "acquire and break locks"),
            ("http_listen", http_listen, "read leaders and their values"),
        ] {
            let remote = listeners.iter().filter(|listener| !listener.is_local());
            let remote: Vec<String> = remote.map(Listen::to_string).collect();
            if !remote.is_empty() && !allow_remote {
                errors.push(self.error(key, remote_problem(&remote.join(" and "), access)));
            }
        }
        let taken = http_listen.iter().filter(|listener| listener.clashes_with(listen));
        for listener in taken {
            let problem =
                format!("{listener} already serves gRPC (listen); choose another address");
            errors.push(self.error("http_listen", problem));
        }
        if self.config.console && self.config.http_listen.is_empty() {
            let problem = "needs a listener for HTTP (http_listen)".to_owned();
            errors.push(self.error("console", problem));
        }
        // An invalid value is also missing from the account: report it once.
        let is_reported = errors.iter().any(|error| error.key.starts_with("azure_"));
        if self.config.store == Store::Azure
            && !is_reported
            && let Err(InvalidSetting { key, problem }) = Address::of(&self.config.azure.account())
        {
            errors.push(self.error(key, problem));
        }
    }

    fn error(&self, key: &str, problem: String) -> ConfigError {
        let value = Setting::find(key).map(|setting| setting.value(&self.config));
        let source = self.source(key);
        let written = value.as_ref().map(|value| match source {
            Source::Environment(_) | Source::Flag(_) => format!("{:?}", plain(value.clone())),
            Source::File(_) | Source::Default => written(value),
        });
        ConfigError {
            key: key.to_owned(),
            source: source.to_string(),
            value: value.map(plain).unwrap_or_default(),
            written,
            problem,
        }
    }

    /// Formats the configuration as a TOML file, with the source of each value as
    /// a comment. Secrets are redacted.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for setting in SETTINGS {
            let value = setting.value(&self.config);
            // Writing to a string can't fail.
            let _ = writeln!(text, "{} = {value} # {}", setting.key, self.source(setting.key));
        }
        text
    }

    /// Formats the configuration as a JSON object: values by key, and sources by
    /// key. Secrets are redacted.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let values: serde_json::Map<_, _> = SETTINGS
            .iter()
            .map(|setting| (setting.key.to_owned(), json(setting.value(&self.config))))
            .collect();
        let sources: serde_json::Map<_, _> = SETTINGS
            .iter()
            .map(|setting| (setting.key.to_owned(), self.source(setting.key).to_string().into()))
            .collect();
        serde_json::json!({ "config": values, "sources": sources })
    }
}

fn remote_problem(listeners: &str, access: &str) -> String {
    format!(
        "{listeners} can be reached from other machines, and there is no authentication: any \
         process that connects can {access}. Listen on a loopback address or a Unix socket, or set \
         allow_remote = true if the network is trusted (flag --allow-remote, environment variable \
         LEASEHOLD_ALLOW_REMOTE)"
    )
}

/// Formats a value as in the environment: lists are separated by commas.
fn plain(value: toml::Value) -> String {
    match value {
        toml::Value::String(text) => text,
        toml::Value::Array(parts) => parts.into_iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn json(value: toml::Value) -> serde_json::Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Boolean(switch) => switch.into(),
        toml::Value::Array(parts) => parts.into_iter().map(json).collect::<Vec<_>>().into(),
        other => other.to_string().into(),
    }
}

//! Layers laid over each other, checked, and shown.

use std::{collections::BTreeMap, fmt::Write};

use super::{Config, ConfigError, ConfigErrors, Layer, Listen, SETTINGS, Setting, Source, Store};
use leasehold_azure_account::{Address, InvalidSetting};

/// The configuration that counts, and where each value came from.
#[derive(Debug)]
pub struct Effective {
    /// The values.
    pub config: Config,
    /// Findings that do not keep the daemon from starting.
    pub warnings: Vec<String>,
    sources: BTreeMap<&'static str, Source>,
}

/// Lays the layers over each other, the last on top, and checks the whole.
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
                    value: setting.conceal(&given),
                    problem: problem.clone(),
                });
            }
            // Of a list, the valid entries are checked too.
            if applied.is_ok() || setting.is_list() {
                effective.sources.insert(setting.key, source);
            }
        }
    }
    effective.check_together(&mut errors);
    ConfigErrors::from(errors).map_or(Ok(effective), Err)
}

impl Effective {
    /// Where the value of `key` came from.
    #[must_use]
    pub fn source(&self, key: &str) -> &Source {
        self.sources.get(key).unwrap_or(&Source::Default)
    }

    /// What no setting can be checked for alone.
    fn check_together(&mut self, errors: &mut Vec<ConfigError>) {
        let config = &mut self.config;
        if config.default_ttl > config.max_ttl {
            if self.sources.contains_key("default_ttl") {
                let longest = humantime::format_duration(config.max_ttl);
                let problem = format!("must not be longer than max_ttl, which is {longest}");
                errors.push(self.error("default_ttl", problem));
            } else {
                config.default_ttl = config.max_ttl;
            }
        }
        if self.config.lease_duration.subsec_nanos() != 0 {
            let problem = "must be whole seconds: the storage knows no others".to_owned();
            errors.push(self.error("lease_duration", problem));
        }
        let Config { listen, http_listen, allow_remote, .. } = &self.config;
        for (key, listeners, what) in [
            ("listen", listen, "take and break locks"),
            ("http_listen", http_listen, "see who leads, and what leaders show"),
        ] {
            let remote = listeners.iter().filter(|listener| !listener.is_local());
            let remote: Vec<String> = remote.map(Listen::to_string).collect();
            if !remote.is_empty() && !allow_remote {
                errors.push(self.error(key, remote_problem(&remote.join(" and "), what)));
            }
        }
        let taken = http_listen.iter().filter(|listener| listener.clashes_with(listen));
        for listener in taken {
            let problem = format!("{listener} is where gRPC is served (listen); choose another");
            errors.push(self.error("http_listen", problem));
        }
        // What was refused is lacking here too, which is not worth a word.
        let judged = errors.iter().any(|error| error.key.starts_with("azure_"));
        if self.config.store == Store::Azure
            && !judged
            && let Err(InvalidSetting { key, problem }) = Address::of(&self.config.azure.account())
        {
            errors.push(self.error(key, problem));
        }
    }

    fn error(&self, key: &str, problem: String) -> ConfigError {
        let value = Setting::find(key).map(|setting| setting.show(&self.config));
        ConfigError {
            key: key.to_owned(),
            source: self.source(key).to_string(),
            value: value.map(plain).unwrap_or_default(),
            problem,
        }
    }

    /// As a file that would say the same, but for secrets, with the source of
    /// each value beside it.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for setting in SETTINGS {
            let value = setting.show(&self.config);
            // Writing to a string can't fail.
            let _ = writeln!(text, "{} = {value} # {}", setting.key, self.source(setting.key));
        }
        text
    }

    /// As one object: the values by key, and the sources by key.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let values: serde_json::Map<_, _> = SETTINGS
            .iter()
            .map(|setting| (setting.key.to_owned(), json(setting.show(&self.config))))
            .collect();
        let sources: serde_json::Map<_, _> = SETTINGS
            .iter()
            .map(|setting| (setting.key.to_owned(), self.source(setting.key).to_string().into()))
            .collect();
        serde_json::json!({ "config": values, "sources": sources })
    }
}

fn remote_problem(listeners: &str, what: &str) -> String {
    format!(
        "{listeners} can be reached from other machines, and there is no authentication: anyone \
         who can connect can {what}. Listen on a loopback address or a Unix socket; or, if the \
         network is trusted, set allow_remote = true \
         (flag --allow-remote, environment variable LEASEHOLD_ALLOW_REMOTE)"
    )
}

/// Lists with commas, as in the environment.
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

//! Settings: names, valid values, and access to the value in a configuration.

mod table;

use std::{ops::RangeInclusive, time::Duration};

pub use table::SETTINGS;

use super::{Config, Listen, REDACTED, RawValue, SecretText, azure, layer, listen};

/// One setting: a row of the table.
#[derive(Debug)]
pub struct Setting {
    /// Key in the file.
    pub key: &'static str,
    /// Heading in the help.
    pub group: Group,
    /// One sentence for the help and the configuration reference, without a final
    /// period.
    pub about: &'static str,
    kind: Kind,
}

/// Headings of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Listeners.
    Listeners,
    /// Kind of store.
    Storage,
    /// Azure store.
    Azure,
    /// Timeouts and intervals.
    Timing,
    /// Limits of one daemon.
    Limits,
    /// Threads and logging.
    Running,
}

/// Type, field and valid values of a setting.
#[derive(Debug)]
enum Kind {
    Listeners {
        field: fn(&mut Config) -> &mut Vec<Listen>,
        /// True if the list must not be empty.
        is_required: bool,
    },
    /// URL of a storage account; a query is a shared access signature.
    Account,
    Secret {
        allowed: &'static str,
        field: fn(&mut Config) -> &mut Option<SecretText>,
        /// Errors must not quote the text.
        parse: fn(&str) -> Result<SecretText, String>,
    },
    Switch(fn(&mut Config) -> &mut bool),
    Number(fn(&mut Config) -> &mut usize, RangeInclusive<usize>),
    Duration(fn(&mut Config) -> &mut Duration, RangeInclusive<Duration>),
    Text {
        allowed: &'static str,
        /// The error has details beyond `allowed`, if there are any.
        parse: fn(&mut Config, &str) -> Result<(), Option<String>>,
        format: fn(&Config) -> String,
    },
}

impl Setting {
    /// Finds a setting by its key.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the name of the environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("LEASEHOLD_{}", self.key.to_uppercase())
    }

    /// Returns the name of the flag, without leading dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Returns whether this is a switch: a flag without a value turns it on.
    #[must_use]
    pub const fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Switch(_))
    }

    /// Returns whether the setting is a list, so that its flag is repeatable.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(self.kind, Kind::Listeners { .. })
    }

    /// Returns whether the value is a secret, which must not be printed.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret { .. })
    }

    /// Formats a given value for messages, without its secrets.
    pub(super) fn redact(&self, given: &RawValue) -> String {
        match self.kind {
            Kind::Secret { .. } => REDACTED.to_owned(),
            Kind::Account => azure::redact(&given.to_string()),
            _ => given.to_string(),
        }
    }

    /// Formats a given value for messages in the syntax of its source, without its
    /// secrets.
    pub(super) fn written(&self, given: &RawValue) -> String {
        match (&self.kind, given) {
            (Kind::Secret { .. } | Kind::Account, _) | (_, RawValue::Words(_)) => {
                format!("{:?}", self.redact(given))
            }
            (_, RawValue::Value(value)) => layer::written(value),
        }
    }

    /// Returns the valid values as a phrase that follows "must be", such as
    /// "a whole number from 1 to 64".
    #[must_use]
    pub fn allowed(&self) -> String {
        match &self.kind {
            Kind::Listeners { .. } => listen::ALLOWED.to_owned(),
            Kind::Account => azure::ACCOUNT_ALLOWED.to_owned(),
            Kind::Switch(_) => "true or false".to_owned(),
            Kind::Number(_, range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Kind::Duration(_, range) => {
                format!("a duration from {}, such as \"10s\" or \"1500ms\"", durations(range))
            }
            Kind::Secret { allowed, .. } | Kind::Text { allowed, .. } => (*allowed).to_owned(),
        }
    }

    /// Returns the range of a number or a duration, as in "1s to 1m".
    #[must_use]
    pub fn range(&self) -> Option<String> {
        match &self.kind {
            Kind::Number(_, range) => Some(format!("{} to {}", range.start(), range.end())),
            Kind::Duration(_, range) => Some(durations(range)),
            _ => None,
        }
    }

    /// Returns the value in `config`. Secrets are redacted.
    #[must_use]
    pub fn value(&self, config: &Config) -> toml::Value {
        let mut config = config.clone();
        match &self.kind {
            Kind::Listeners { field, .. } => {
                field(&mut config).iter().map(Listen::to_string).collect::<Vec<_>>().into()
            }
            Kind::Account => config.azure.redacted_account_url().into(),
            Kind::Secret { field, .. } => {
                field(&mut config).as_ref().map_or("", |_| REDACTED).into()
            }
            Kind::Switch(field) => (*field(&mut config)).into(),
            // All ranges end far below `i64::MAX`.
            Kind::Number(field, _) => i64::try_from(*field(&mut config)).unwrap_or(i64::MAX).into(),
            Kind::Duration(field, _) => {
                humantime::format_duration(*field(&mut config)).to_string().into()
            }
            Kind::Text { format, .. } => format(&config).into(),
        }
    }

    /// Sets the value in `config`. The error describes the valid values.
    pub(super) fn apply(&self, config: &mut Config, given: &RawValue) -> Result<(), String> {
        let invalid = || format!("must be {}", self.allowed());
        match &self.kind {
            Kind::Listeners { field, is_required } => {
                let mut texts = given.as_list().ok_or_else(invalid)?;
                if !is_required {
                    texts.retain(|text| !text.is_empty());
                } else if texts.is_empty() {
                    return Err("is empty; at least one listener is required".to_owned());
                }
                let (listeners, problems) = parse_listeners(&texts);
                *field(config) = listeners;
                if !problems.is_empty() {
                    return Err(problems.join("; "));
                }
            }
            Kind::Account => {
                let text = given.as_text().ok_or_else(invalid)?.trim();
                let parsed = (!text.is_empty())
                    .then(|| leasehold_azure_account::parse_account_url(text))
                    .transpose();
                let (url, sas) = parsed?.unzip();
                config.azure.account_url = url.map(|url| url.as_str().trim_end_matches('/').into());
                config.azure.url_sas = sas.flatten();
            }
            Kind::Secret { field, parse, .. } => {
                let text = given.as_text().ok_or_else(invalid)?.trim();
                if text == REDACTED {
                    return Err("is only the placeholder; give the secret itself".into());
                }
                *field(config) = (!text.is_empty()).then(|| parse(text)).transpose()?;
            }
            Kind::Switch(field) => *field(config) = given.as_switch().ok_or_else(invalid)?,
            Kind::Number(field, range) => {
                let number = given.as_number().and_then(|number| usize::try_from(number).ok());
                let number = number.filter(|number| range.contains(number));
                *field(config) = number.ok_or_else(invalid)?;
            }
            Kind::Duration(field, range) => {
                let duration =
                    given.as_text().and_then(|text| humantime::parse_duration(text).ok());
                let duration = duration.filter(|duration| range.contains(duration));
                *field(config) = duration.ok_or_else(invalid)?;
            }
            Kind::Text { parse, .. } => {
                let text = given.as_text().ok_or_else(invalid)?;
                parse(config, text).map_err(|detail| match detail {
                    Some(detail) => format!("{}: {detail}", invalid()),
                    None => invalid(),
                })?;
            }
        }
        Ok(())
    }
}

fn durations(range: &RangeInclusive<Duration>) -> String {
    let format = humantime::format_duration;
    format!("{} to {}", format(*range.start()), format(*range.end()))
}

/// Returns the valid listeners, and the problems of the others.
fn parse_listeners(texts: &[String]) -> (Vec<Listen>, Vec<String>) {
    let mut listeners = Vec::with_capacity(texts.len());
    let mut problems = Vec::new();
    for text in texts {
        match Listen::parse(text) {
            Ok(listener) if listener.clashes_with(&listeners) => {
                problems.push(format!("{text:?} is listed twice"));
            }
            Ok(listener) => listeners.push(listener),
            Err(problem) => problems.push(format!("{text:?} {problem}")),
        }
    }
    (listeners, problems)
}

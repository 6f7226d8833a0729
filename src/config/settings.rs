//! What a setting is: its names, its limits, its value.

mod table;

use std::{ops::RangeInclusive, time::Duration};

pub use table::SETTINGS;

use super::{Config, Listen, REDACTED, RawValue, SecretText, azure, listen};

/// One line of the table.
#[derive(Debug)]
pub struct Setting {
    /// Its name in the file.
    pub key: &'static str,
    /// Its place in the help.
    pub group: Group,
    /// What it is for.
    pub about: &'static str,
    kind: Kind,
}

/// The headings of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Where clients connect.
    Listeners,
    /// Where leases are kept.
    Storage,
    /// How the Azure store is reached.
    Azure,
    /// Sessions and time.
    Timing,
    /// What one daemon bears.
    Limits,
    /// How it runs.
    Running,
}

/// What a setting holds, where, and within which limits.
#[derive(Debug)]
enum Kind {
    Listeners {
        field: fn(&mut Config) -> &mut Vec<Listen>,
        /// Whether there must be one.
        needed: bool,
    },
    /// The address of a storage account, perhaps with a signature as its query.
    Account,
    Secret {
        allowed: &'static str,
        field: fn(&mut Config) -> &mut Option<SecretText>,
        /// Fails with what is wrong, and does not quote it.
        read: fn(&str) -> Result<SecretText, String>,
    },
    Switch(fn(&mut Config) -> &mut bool),
    Number(fn(&mut Config) -> &mut usize, RangeInclusive<usize>),
    Length(fn(&mut Config) -> &mut Duration, RangeInclusive<Duration>),
    Text {
        allowed: &'static str,
        /// Fails with more than `allowed` says, if there is more to say.
        parse: fn(&mut Config, &str) -> Result<(), Option<String>>,
        show: fn(&Config) -> String,
    },
}

impl Setting {
    /// The setting of that key.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Its name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("LEASEHOLD_{}", self.key.to_uppercase())
    }

    /// Its name as a flag, without the dashes in front.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Whether it is on or off, so that the bare flag means on.
    #[must_use]
    pub const fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Switch(_))
    }

    /// Whether it can be given more than once.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(self.kind, Kind::Listeners { .. })
    }

    /// Whether its value must not be shown.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret { .. })
    }

    /// What may be shown of a value that was given for it.
    pub(super) fn conceal(&self, given: &RawValue) -> String {
        match self.kind {
            Kind::Secret { .. } => REDACTED.to_owned(),
            Kind::Account => azure::conceal(&given.to_string()),
            _ => given.to_string(),
        }
    }

    /// The values that it may have, in words.
    #[must_use]
    pub fn allowed(&self) -> String {
        match &self.kind {
            Kind::Listeners { .. } => listen::ALLOWED.to_owned(),
            Kind::Account => azure::ACCOUNT_ALLOWED.to_owned(),
            Kind::Switch(_) => "true or false".to_owned(),
            Kind::Number(_, range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Kind::Length(_, range) => format!(
                "a length of time from {} to {}, such as \"10s\" or \"1500ms\"",
                humantime::format_duration(*range.start()),
                humantime::format_duration(*range.end())
            ),
            Kind::Secret { allowed, .. } | Kind::Text { allowed, .. } => (*allowed).to_owned(),
        }
    }

    /// Its value in `config`. In place of a secret, only that there is one.
    #[must_use]
    pub fn show(&self, config: &Config) -> toml::Value {
        let mut config = config.clone();
        match &self.kind {
            Kind::Listeners { field, .. } => {
                field(&mut config).iter().map(Listen::to_string).collect::<Vec<_>>().into()
            }
            Kind::Account => config.azure.show_account().into(),
            Kind::Secret { field, .. } => {
                field(&mut config).as_ref().map_or("", |_| REDACTED).into()
            }
            Kind::Switch(field) => (*field(&mut config)).into(),
            // The ranges end far below the largest integer.
            Kind::Number(field, _) => i64::try_from(*field(&mut config)).unwrap_or(i64::MAX).into(),
            Kind::Length(field, _) => {
                humantime::format_duration(*field(&mut config)).to_string().into()
            }
            Kind::Text { show, .. } => show(&config).into(),
        }
    }

    /// Puts a value into `config`, if it is allowed; otherwise says what is.
    pub(super) fn apply(&self, config: &mut Config, given: &RawValue) -> Result<(), String> {
        let refused = || format!("must be {}", self.allowed());
        match &self.kind {
            Kind::Listeners { field, needed } => {
                let mut texts = given.as_list().ok_or_else(refused)?;
                if !needed {
                    texts.retain(|text| !text.is_empty());
                } else if texts.is_empty() {
                    return Err("names no listener; at least one is needed".to_owned());
                }
                let (listeners, problems) = parse_listeners(&texts);
                *field(config) = listeners;
                if !problems.is_empty() {
                    return Err(problems.join("; "));
                }
            }
            Kind::Account => {
                let text = given.as_text().ok_or_else(refused)?.trim();
                let read = (!text.is_empty())
                    .then(|| leasehold_azure_account::parse_account_url(text))
                    .transpose();
                let (url, sas) = read?.unzip();
                config.azure.account_url = url.map(|url| url.as_str().trim_end_matches('/').into());
                config.azure.url_sas = sas.flatten();
            }
            Kind::Secret { field, read, .. } => {
                let text = given.as_text().ok_or_else(refused)?.trim();
                if text == REDACTED {
                    return Err("stands for the secret where it is shown; give the secret".into());
                }
                *field(config) = (!text.is_empty()).then(|| read(text)).transpose()?;
            }
            Kind::Switch(field) => *field(config) = given.as_switch().ok_or_else(refused)?,
            Kind::Number(field, range) => {
                let number = given.as_number().and_then(|number| usize::try_from(number).ok());
                let number = number.filter(|number| range.contains(number));
                *field(config) = number.ok_or_else(refused)?;
            }
            Kind::Length(field, range) => {
                let length = given.as_text().and_then(|text| text.parse().ok());
                let length = length.map(|length: humantime::Duration| Duration::from(length));
                let length = length.filter(|length| range.contains(length));
                *field(config) = length.ok_or_else(refused)?;
            }
            Kind::Text { parse, .. } => {
                let text = given.as_text().ok_or_else(refused)?;
                parse(config, text).map_err(|detail| match detail {
                    Some(detail) => format!("{}: {detail}", refused()),
                    None => refused(),
                })?;
            }
        }
        Ok(())
    }
}

/// The valid listeners, and the problems of the others.
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

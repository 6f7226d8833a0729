//! The table of all that can be set.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use super::{Config, Given, Listen, LogFormat, Store, listen};
use crate::telemetry;

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
    Listeners,
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

const fn setting(key: &'static str, group: Group, about: &'static str, kind: Kind) -> Setting {
    Setting { key, group, about, kind }
}

const fn seconds(from: u64, to: u64) -> RangeInclusive<Duration> {
    Duration::from_secs(from)..=Duration::from_secs(to)
}

/// All that can be set, in the order in which it is shown.
pub const SETTINGS: &[Setting] = &[
    setting(
        "listen",
        Group::Listeners,
        "Where clients connect; several are possible",
        Kind::Listeners,
    ),
    setting(
        "allow_remote",
        Group::Listeners,
        "Allow listeners that other machines can reach. There is no authentication: \
         anyone who can connect can take and break locks",
        Kind::Switch(|config| &mut config.allow_remote),
    ),
    setting(
        "socket_mode",
        Group::Listeners,
        "The permission bits of Unix sockets",
        Kind::Text {
            allowed: "an octal number from 0000 to 0777, in a file as a string such as \"0660\"",
            parse: |config, text| {
                let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
                config.socket_mode = mode.ok_or(None)?;
                Ok(())
            },
            show: |config| format!("{:04o}", config.socket_mode),
        },
    ),
    setting(
        "store",
        Group::Storage,
        "Where leases are kept",
        Kind::Text {
            allowed: "\"embedded\"",
            parse: |config, text| {
                config.store = match text {
                    "embedded" => Store::Embedded,
                    _ => return Err(None),
                };
                Ok(())
            },
            show: |config| config.store.name().to_owned(),
        },
    ),
    setting(
        "data_dir",
        Group::Storage,
        "The directory of the embedded store; one daemon at a time uses it",
        Kind::Text {
            allowed: "the path of a directory",
            parse: |config, text| {
                if text.is_empty() || text.contains('\0') {
                    return Err(None);
                }
                config.data_dir = PathBuf::from(text);
                Ok(())
            },
            show: |config| config.data_dir.display().to_string(),
        },
    ),
    setting(
        "default_ttl",
        Group::Timing,
        "The ttl of sessions that ask for none; if not set, no longer than longest_ttl",
        Kind::Length(|config| &mut config.default_ttl, seconds(1, 60)),
    ),
    setting(
        "longest_ttl",
        Group::Timing,
        "The longest ttl of a session; who asks for more is refused. After a crash, \
         nothing is granted for the longest ttl that was in use",
        Kind::Length(|config| &mut config.longest_ttl, seconds(1, 60)),
    ),
    setting(
        "drain",
        Group::Timing,
        "How long holders are waited for at shutdown",
        Kind::Length(|config| &mut config.drain, seconds(0, 300)),
    ),
    setting(
        "lease_duration",
        Group::Timing,
        "The duration of leases, in stores whose leases expire",
        Kind::Length(|config| &mut config.lease_duration, seconds(15, 60)),
    ),
    setting(
        "max_connections",
        Group::Limits,
        "The most connections at a time",
        Kind::Number(|config| &mut config.max_connections, 1..=1_000_000),
    ),
    setting(
        "max_sessions",
        Group::Limits,
        "The most sessions at a time",
        Kind::Number(|config| &mut config.max_sessions, 1..=10_000_000),
    ),
    setting(
        "max_locks",
        Group::Limits,
        "The most locks that are held or waited for at a time",
        Kind::Number(|config| &mut config.max_locks, 1..=100_000_000),
    ),
    setting(
        "max_waiters_per_lock",
        Group::Limits,
        "The most acquires that wait for one lock",
        Kind::Number(|config| &mut config.max_waiters_per_lock, 1..=10_000_000),
    ),
    setting(
        "max_locks_per_session",
        Group::Limits,
        "The most locks that one session holds or waits for",
        Kind::Number(|config| &mut config.max_locks_per_session, 1..=100_000_000),
    ),
    setting(
        "threads",
        Group::Running,
        "How many threads serve clients; with 1, everything runs on one thread, which \
         is fastest for most",
        Kind::Number(|config| &mut config.threads, 1..=64),
    ),
    setting(
        "reflection",
        Group::Running,
        "Serve gRPC reflection, for tools such as grpcurl",
        Kind::Switch(|config| &mut config.reflection),
    ),
    setting(
        "log",
        Group::Running,
        "What is logged",
        Kind::Text {
            allowed: "a level (error, warn, info, debug, trace, off), or directives such as \
                      \"info,leasehold::lease=debug\"",
            parse: |config, text| {
                telemetry::parse_filter(text).map_err(Some)?;
                text.clone_into(&mut config.log);
                Ok(())
            },
            show: |config| config.log.clone(),
        },
    ),
    setting(
        "log_format",
        Group::Running,
        "How it is logged",
        Kind::Text {
            allowed: "\"text\" or \"json\"",
            parse: |config, text| {
                config.log_format = match text {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    _ => return Err(None),
                };
                Ok(())
            },
            show: |config| config.log_format.name().to_owned(),
        },
    ),
];

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
        matches!(self.kind, Kind::Listeners)
    }

    /// The values that it may have, in words.
    #[must_use]
    pub fn allowed(&self) -> String {
        match &self.kind {
            Kind::Listeners => listen::ALLOWED.to_owned(),
            Kind::Switch(_) => "true or false".to_owned(),
            Kind::Number(_, range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Kind::Length(_, range) => format!(
                "a length of time from {} to {}, such as \"10s\" or \"1500ms\"",
                humantime::format_duration(*range.start()),
                humantime::format_duration(*range.end())
            ),
            Kind::Text { allowed, .. } => (*allowed).to_owned(),
        }
    }

    /// Its value in `config`.
    #[must_use]
    pub fn show(&self, config: &Config) -> toml::Value {
        let mut config = config.clone();
        match &self.kind {
            Kind::Listeners => {
                config.listen.iter().map(Listen::to_string).collect::<Vec<_>>().into()
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
    pub(super) fn apply(&self, config: &mut Config, given: &Given) -> Result<(), String> {
        let refused = || format!("must be {}", self.allowed());
        match &self.kind {
            Kind::Listeners => {
                config.listen = parse_listeners(&given.as_list().ok_or_else(refused)?)?;
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

fn parse_listeners(texts: &[String]) -> Result<Vec<Listen>, String> {
    if texts.is_empty() {
        return Err("names no listener; at least one is needed".to_owned());
    }
    let mut listeners = Vec::with_capacity(texts.len());
    let mut problems = Vec::new();
    for text in texts {
        match Listen::parse(text) {
            // Port 0 is another port each time.
            Ok(Listen::Tcp(address)) if address.port() == 0 => {
                listeners.push(Listen::Tcp(address));
            }
            Ok(listener) if listeners.contains(&listener) => {
                problems.push(format!("{text:?} is listed twice"));
            }
            Ok(listener) => listeners.push(listener),
            Err(problem) => problems.push(format!("{text:?} {problem}")),
        }
    }
    if problems.is_empty() { Ok(listeners) } else { Err(problems.join("; ")) }
}

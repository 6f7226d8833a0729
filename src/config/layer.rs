//! The places that values come from, read without judging the values.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::Path,
};

use super::{ConfigError, Identity, REDACTED, SETTINGS, Setting};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The file of this path.
    File(String),
    /// The environment variable of this name.
    Environment(String),
    /// The flag of this name, without dashes in front.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Environment(variable) => write!(f, "environment variable {variable}"),
            Self::Flag(flag) => write!(f, "flag --{flag}"),
        }
    }
}

/// A value as it was written. It may be a secret.
#[derive(Clone, PartialEq)]
pub enum RawValue {
    /// From the environment or a flag: a text that may stand for anything.
    Words(Vec<String>),
    /// From a file.
    Value(toml::Value),
}

impl RawValue {
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Words(words) => words.last().map(String::as_str),
            Self::Value(value) => value.as_str(),
        }
    }

    pub(super) fn as_number(&self) -> Option<i64> {
        match self {
            Self::Words(words) => words.last()?.parse().ok(),
            Self::Value(value) => value.as_integer(),
        }
    }

    pub(super) fn as_switch(&self) -> Option<bool> {
        match self {
            Self::Words(words) => words.last()?.parse().ok(),
            Self::Value(value) => value.as_bool(),
        }
    }

    /// Commas divide words, and a text in a file.
    pub(super) fn as_list(&self) -> Option<Vec<String>> {
        let split = |text: &str| text.split(',').map(|part| part.trim().to_owned()).collect();
        match self {
            Self::Words(words) => Some(split(&words.join(","))),
            Self::Value(toml::Value::String(text)) => Some(split(text)),
            Self::Value(value) => {
                value.as_array()?.iter().map(|part| part.as_str().map(str::to_owned)).collect()
            }
        }
    }
}

impl fmt::Debug for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawValue({REDACTED})")
    }
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(&words.join(",")),
            Self::Value(toml::Value::String(text)) => f.write_str(text),
            // No setting has keys of its own: what was meant may be a secret.
            Self::Value(value) if has_keys(value) => f.write_str(REDACTED),
            Self::Value(value) => value.fmt(f),
        }
    }
}

fn has_keys(value: &toml::Value) -> bool {
    match value {
        toml::Value::Table(_) => true,
        toml::Value::Array(parts) => parts.iter().any(has_keys),
        _ => false,
    }
}

/// What one place says.
#[derive(Debug, Default)]
pub struct Layer {
    pub(super) entries: Vec<(&'static Setting, Source, RawValue)>,
    pub(super) errors: Vec<ConfigError>,
    /// Findings that do not keep the daemon from starting.
    pub(super) warnings: Vec<String>,
    /// What this place says about an identity, if it is the one that can.
    pub(super) identity: Option<Identity>,
}

impl Layer {
    /// A file, which `named_by` asked for. A file that can't be used is an
    /// error like any other.
    #[must_use]
    pub fn file(path: &Path, named_by: &Source) -> Self {
        let unusable = |problem: String| Self {
            errors: vec![ConfigError {
                key: "config".to_owned(),
                source: named_by.to_string(),
                value: path.display().to_string(),
                problem,
            }],
            ..Self::default()
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return unusable(format!("can't be read: {error}")),
        };
        match text.parse::<toml::Table>() {
            Ok(table) => Self::table(table, &Source::File(path.display().to_string())),
            Err(error) => unusable(not_toml(&text, &error)),
        }
    }

    fn table(table: toml::Table, source: &Source) -> Self {
        let mut layer = Self::default();
        for (key, value) in table {
            if let Some(setting) = Setting::find(&key) {
                layer.entries.push((setting, source.clone(), RawValue::Value(value)));
            } else {
                let problem = nearest(&key).map_or_else(
                    || "there is no such setting".to_owned(),
                    |near| format!("there is no such setting; did you mean {near}?"),
                );
                // What was meant may be a secret.
                let value = REDACTED.to_owned();
                let key = quoted_if_odd(key);
                layer.errors.push(ConfigError { key, source: source.to_string(), value, problem });
            }
        }
        layer
    }

    /// Reads the settings from the environment. An empty variable counts as not
    /// set.
    #[must_use]
    pub fn environment(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let identity = Some(Identity::from_environment(&lookup));
        let mut layer = Self { identity, ..Self::default() };
        for setting in SETTINGS {
            let variable = setting.variable();
            let source = Source::Environment(variable.clone());
            match lookup(&variable).map(OsString::into_string) {
                Some(Ok(text)) if !text.is_empty() => {
                    layer.entries.push((setting, source, RawValue::Words(vec![text])));
                }
                Some(Err(bytes)) => layer.errors.push(ConfigError {
                    key: setting.key.to_owned(),
                    source: source.to_string(),
                    value: setting.conceal(&lossy(&bytes)),
                    problem: "is not UTF-8".to_owned(),
                }),
                Some(Ok(_)) | None => {}
            }
        }
        layer
    }

    /// Adds a warning for each of these variables that has our prefix and no
    /// meaning. A warning, not an error: images and orchestrators set variables
    /// with the prefix of a name that they chose themselves, such as
    /// `LEASEHOLD_VERSION`.
    #[must_use]
    pub fn with_variables(mut self, names: impl IntoIterator<Item = String>) -> Self {
        let mut unknown: Vec<String> =
            names.into_iter().filter(|name| is_unknown_variable(name)).collect();
        unknown.sort_unstable();
        self.warnings.extend(unknown.iter().map(|name| {
            let near = name.strip_prefix(PREFIX).and_then(nearest).and_then(Setting::find);
            let hint = near.map(|near| format!("; did you mean {}?", near.variable()));
            let name = quoted_if_odd(name.clone());
            format!("environment variable {name} is no setting{}", hint.unwrap_or_default())
        }));
        self
    }

    /// Flags, with all that was given for each.
    #[must_use]
    pub fn flags(given: impl IntoIterator<Item = (&'static Setting, Vec<String>)>) -> Self {
        let entry = |(setting, words): (&'static Setting, Vec<String>)| {
            (setting, Source::Flag(setting.flag()), RawValue::Words(words))
        };
        Self { entries: given.into_iter().map(entry).collect(), ..Self::default() }
    }
}

/// Prefix of the environment variables of this program.
const PREFIX: &str = "LEASEHOLD_";

/// Variables that are no settings of the daemon: those of the command line, and
/// those that `lock` and `elect` set for their commands.
const OTHER_VARIABLES: [&str; 7] =
    ["CONFIG", "ELECTION", "ENDPOINT", "LOCK", "NAMESPACE", "PROGRESS_FILE", "TOKEN"];

fn is_unknown_variable(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    Setting::find(&rest.to_ascii_lowercase()).is_none_or(|setting| setting.variable() != name)
        && !OTHER_VARIABLES.contains(&rest)
        && !is_service_variable(rest)
}

/// Whether Kubernetes sets this variable for a service named `leasehold` or
/// `leasehold-…`: `…SERVICE_HOST`, `…SERVICE_PORT…`, `…PORT`, `…PORT_7420_TCP…`.
fn is_service_variable(rest: &str) -> bool {
    let rest = format!("_{rest}");
    let numbered = rest.split("_PORT_").skip(1).any(|port| {
        let mut parts = port.split('_');
        let number = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
        number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    });
    rest.ends_with("_SERVICE_HOST")
        || rest.contains("_SERVICE_PORT")
        || rest.ends_with("_PORT")
        || numbered
}

/// A key as a file has to write it: with quotes unless it is plain. So an empty
/// one can be seen, and none does anything to a terminal.
fn quoted_if_odd(key: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(plain) { key } else { format!("{key:?}") }
}

fn lossy(bytes: &OsStr) -> RawValue {
    RawValue::Words(vec![bytes.to_string_lossy().into_owned()])
}

/// Where a file stops being TOML. The line itself is not quoted: it may have a
/// secret in it.
fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("is not TOML: line {line}: {}", error.message())
}

/// The known key that `key` was most likely meant to be.
fn nearest(key: &str) -> Option<&'static str> {
    let key = key.replace('-', "_").to_lowercase();
    let near = SETTINGS.iter().map(|setting| (distance(&key, setting.key), setting.key)).min()?;
    (near.0 <= near.1.len() / 2).then_some(near.1)
}

/// How many letters must be added, taken away or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found() {
        assert_eq!(nearest("listn"), Some("listen"));
        assert_eq!(nearest("data-dir"), Some("data_dir"));
        assert_eq!(nearest("DEFAULT_TTL"), Some("default_ttl"));
        assert_eq!(nearest("quorum"), None);
    }
}

//! Sources of values: file, environment and flags. Values are not validated
//! here.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::Path,
};

use super::{ConfigError, Identity, REDACTED, SETTINGS, Setting};

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Not set.
    Default,
    /// File with this path.
    File(String),
    /// Environment variable with this name.
    Environment(String),
    /// Flag with this name, without leading dashes.
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

/// Value as written. It may be a secret.
#[derive(Clone, PartialEq)]
pub enum RawValue {
    /// Untyped text from the environment or a flag, one item per occurrence.
    Words(Vec<String>),
    /// Typed value from a file.
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

    /// Splits words, and a string in a file, at commas.
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
            // No setting is a table: an unknown key may hold a secret.
            Self::Value(value) if has_keys(value) => f.write_str(REDACTED),
            Self::Value(value) => value.fmt(f),
        }
    }
}

/// Formats a value of a file as in the file, on one line.
pub(super) fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Array(parts) if !has_keys(value) => {
            let parts: Vec<String> = parts.iter().map(written).collect();
            format!("[{}]", parts.join(", "))
        }
        value if has_keys(value) => format!("{REDACTED:?}"),
        value => value.to_string(),
    }
}

fn has_keys(value: &toml::Value) -> bool {
    match value {
        toml::Value::Table(_) => true,
        toml::Value::Array(parts) => parts.iter().any(has_keys),
        _ => false,
    }
}

/// Values from one source.
#[derive(Debug, Default)]
pub struct Layer {
    pub(super) entries: Vec<(&'static Setting, Source, RawValue)>,
    pub(super) errors: Vec<ConfigError>,
    /// Problems that do not prevent a start.
    pub(super) warnings: Vec<String>,
    /// Identity; only the environment has one.
    pub(super) identity: Option<Identity>,
}

impl Layer {
    /// Reads the file that `named_by` names. An unusable file is reported like any
    /// other error.
    #[must_use]
    pub fn file(path: &Path, named_by: &Source) -> Self {
        let unusable = |problem: String| Self {
            errors: vec![ConfigError {
                key: "config".to_owned(),
                source: named_by.to_string(),
                value: path.display().to_string(),
                written: Some(format!("{:?}", path.display().to_string())),
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
            Err(error) => unusable(syntax_problem(&text, &error)),
        }
    }

    fn table(table: toml::Table, source: &Source) -> Self {
        let mut layer = Self::default();
        for (key, value) in table {
            if let Some(setting) = Setting::find(&key) {
                layer.entries.push((setting, source.clone(), RawValue::Value(value)));
            } else {
                let problem = nearest(&key).map_or_else(
                    || "unknown setting".to_owned(),
                    |near| format!("unknown setting; did you mean {near:?}?"),
                );
                // The value may be a secret under a misspelled key.
                let value = REDACTED.to_owned();
                let (key, source) = (quoted_if_odd(key), source.to_string());
                layer.errors.push(ConfigError { key, source, value, written: None, problem });
            }
        }
        layer
    }

    /// Reads the settings from the environment. An empty variable counts as unset.
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
                    value: setting.redact(&lossy(&bytes)),
                    written: Some(setting.written(&lossy(&bytes))),
                    problem: "is not UTF-8".to_owned(),
                }),
                Some(Ok(_)) | None => {}
            }
        }
        layer
    }

    /// Adds a warning for each variable with the prefix `LEASEHOLD_` that is not a
    /// setting. It is not an error, because images and orchestrators set variables
    /// such as `LEASEHOLD_VERSION`.
    #[must_use]
    pub fn with_variables(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(unknown_variables(names));
        self
    }

    /// Creates the layer of the flags, with all values of each.
    #[must_use]
    pub fn flags(given: impl IntoIterator<Item = (&'static Setting, Vec<String>)>) -> Self {
        let entry = |(setting, words): (&'static Setting, Vec<String>)| {
            (setting, Source::Flag(setting.flag()), RawValue::Words(words))
        };
        Self { entries: given.into_iter().map(entry).collect(), ..Self::default() }
    }
}

/// Prefix of this program's environment variables.
const PREFIX: &str = "LEASEHOLD_";

/// Variables of the command line other than the daemon's settings.
const OPTION_VARIABLES: [&str; 3] = ["CONFIG", "ENDPOINT", "NAMESPACE"];

/// Variables that `lock` and `elect` set for their commands.
const COMMAND_VARIABLES: [&str; 4] = ["ELECTION", "LOCK", "PROGRESS_FILE", "TOKEN"];

/// Returns a warning for each name with the prefix `LEASEHOLD_` that is not a known
/// variable, in the order of the names.
#[must_use]
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut unknown: Vec<String> =
        names.into_iter().filter(|name| is_unknown_variable(name)).collect();
    unknown.sort_unstable();
    let warning = |name: String| {
        let near = name.strip_prefix(PREFIX).and_then(nearest_variable);
        let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("ignored the unknown environment variable {}{hint}", quoted_if_odd(name))
    };
    unknown.into_iter().map(warning).collect()
}

fn is_unknown_variable(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    Setting::find(&rest.to_ascii_lowercase()).is_none_or(|setting| setting.variable() != name)
        && !OPTION_VARIABLES.contains(&rest)
        && !COMMAND_VARIABLES.contains(&rest)
        && !is_service_variable(rest)
}

/// Returns whether Kubernetes sets this variable for a service named `leasehold` or
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

/// Quotes a key unless it is a bare TOML key, so that an empty key is visible and
/// control characters do not reach the terminal.
fn quoted_if_odd(key: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(plain) { key } else { format!("{key:?}") }
}

fn lossy(bytes: &OsStr) -> RawValue {
    RawValue::Words(vec![bytes.to_string_lossy().into_owned()])
}

/// Position and kind of a TOML syntax error. The line is not quoted, because it
/// may contain a secret.
fn syntax_problem(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("invalid TOML, line {line}: {}", error.message())
}

/// Finds the setting whose key is closest to a misspelled one.
fn nearest(key: &str) -> Option<&'static str> {
    let key = key.replace('-', "_").to_lowercase();
    nearest_of(&key, SETTINGS.iter().map(|setting| setting.key))
}

/// Finds the known variable whose name is closest to a misspelled one. `rest` is the
/// misspelled name without the prefix.
fn nearest_variable(rest: &str) -> Option<String> {
    let variables: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
    let settings = variables.iter().filter_map(|variable| variable.strip_prefix(PREFIX));
    let near = nearest_of(&rest.to_uppercase(), settings.chain(OPTION_VARIABLES))?;
    Some(format!("{PREFIX}{near}"))
}

fn nearest_of<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|known| (distance(word, known), known)).min()?;
    (near.0 <= near.1.len() / 2).then_some(near.1)
}

/// Edit distance: letters to insert, delete or replace.
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
    fn nearest_key_is_found() {
        assert_eq!(nearest("listn"), Some("listen"));
        assert_eq!(nearest("data-dir"), Some("data_dir"));
        assert_eq!(nearest("DEFAULT_TTL"), Some("default_ttl"));
        assert_eq!(nearest("quorum"), None);
        assert_eq!(nearest("namespce"), None);
    }

    #[test]
    fn nearest_variable_is_found() {
        let near = |rest| nearest_variable(rest).unwrap_or_default();
        assert_eq!(near("NAMESPCE"), "LEASEHOLD_NAMESPACE");
        assert_eq!(near("ENDPOINTS"), "LEASEHOLD_ENDPOINT");
        assert_eq!(near("DRIAN_TIMEOUT"), "LEASEHOLD_DRAIN_TIMEOUT");
        assert_eq!(near("QUORUM"), "");
    }
}

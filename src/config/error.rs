//! Configuration errors, as text and as JSON.

use std::{error, fmt};

use serde::Serialize;

/// One invalid value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// Key of the setting.
    pub key: String,
    /// Source of the value.
    pub source: String,
    /// Value as given; redacted if it can be secret.
    pub value: String,
    /// Value in the syntax of its source; `None` if the text has none.
    #[serde(skip)]
    pub written: Option<String>,
    /// Problem, and the allowed values.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, source, problem, .. } = self;
        match &self.written {
            Some(written) => write!(f, "{key} = {written} ({source}): {problem}"),
            None => write!(f, "{key} ({source}): {problem}"),
        }
    }
}

/// All errors of a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Returns `None` if there are no errors.
    #[must_use]
    pub fn from(errors: Vec<ConfigError>) -> Option<Self> {
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Returns all errors.
    #[must_use]
    pub fn all(&self) -> &[ConfigError] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "invalid configuration:")?,
            count => write!(f, "invalid configuration ({count} errors):")?,
        }
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl error::Error for ConfigErrors {}

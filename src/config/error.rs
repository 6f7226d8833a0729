//! What is wrong with a configuration, for people and for programs.

use std::{error, fmt};

use serde::Serialize;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// The setting.
    pub key: String,
    /// Where the value came from.
    pub source: String,
    /// The value.
    pub value: String,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?} ({}): {}", self.key, self.value, self.source, self.problem)
    }
}

/// Everything that is wrong, at once; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `None` if nothing is wrong.
    #[must_use]
    pub fn from(errors: Vec<ConfigError>) -> Option<Self> {
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Each of them.
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

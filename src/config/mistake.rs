//! What is wrong with a configuration, for people and for programs.

use std::{error, fmt};

use serde::Serialize;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The setting.
    pub key: String,
    /// Where the value came from.
    pub source: String,
    /// The value.
    pub value: String,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?} ({}): {}", self.key, self.value, self.source, self.problem)
    }
}

/// Everything that is wrong, at once; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// `None` if nothing is wrong.
    #[must_use]
    pub fn from(mistakes: Vec<Mistake>) -> Option<Self> {
        (!mistakes.is_empty()).then_some(Self(mistakes))
    }

    /// Each of them.
    #[must_use]
    pub fn all(&self) -> &[Mistake] {
        &self.0
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "invalid configuration:")?,
            count => write!(f, "invalid configuration ({count} errors):")?,
        }
        self.0.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl error::Error for Mistakes {}

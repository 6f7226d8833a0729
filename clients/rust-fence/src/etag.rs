//! Versions of what is stored.

use std::fmt;

/// A version of a row or a blob: it changes with every change.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ETag(String);

impl ETag {
    /// As the service wrote it.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As the service writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ETag({})", self.0)
    }
}

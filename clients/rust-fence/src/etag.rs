//! Versions of stored rows and blobs.

use std::fmt;

/// Version of a row or a blob. Every change of the resource changes it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ETag(String);

impl ETag {
    /// Creates an ETag from the service's text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the service's text.
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

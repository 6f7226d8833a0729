//! A text that is never shown: a key or a signature.

use std::fmt;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct SecretText(Box<str>);

impl SecretText {
    pub(super) fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// For whoever it is meant for.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(REDACTED)")
    }
}

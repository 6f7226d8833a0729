//! Texts that are never printed.

use std::fmt;

/// Text that is never printed: a key, a signature, a connection string.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Box<str>);

impl SecretText {
    /// Wraps the text.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text, for sending and signing only.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(REDACTED)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_redacts_text() {
        let text = SecretText::new("mysecret");
        assert_eq!(text.expose(), "mysecret");
        assert_eq!(format!("{:?}", Some(text)), "Some(SecretText(REDACTED))");
    }
}

//! Texts that are never shown.

use std::fmt;

/// Text that is never shown: a key, a signature, a connection string.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Box<str>);

impl SecretText {
    /// Wraps the text.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text, to be sent or signed with only.
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
    fn debug_does_not_show_the_text() {
        let text = SecretText::new("hush");
        assert_eq!(text.expose(), "hush");
        assert_eq!(format!("{:?}", Some(text)), "Some(SecretText(REDACTED))");
    }
}

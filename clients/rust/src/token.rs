//! Fencing tokens.

use std::{fmt, str::FromStr};

/// Fencing token of a grant: higher than the token of every earlier grant of the
/// same lock. Tokens of different locks can't be compared.
///
/// A token is written as a decimal number and fits into 53 bits, so that it
/// also survives JSON and a database's BIGINT.
///
/// ```
/// use leasehold_client::Token;
///
/// let token: Token = "7".parse()?;
/// assert!(token > Token::new(6));
/// assert_eq!(u64::from(token), 7);
/// # Ok::<(), leasehold_client::ParseTokenError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

/// Error of parsing a [`Token`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid token {0:?}: expected a decimal number without sign or leading zeros")]
pub struct ParseTokenError(String);

impl Token {
    /// Creates a token from its number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Token {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Token {
    type Err = ParseTokenError;

    /// Accepts exactly what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.parse().ok().filter(|number: &u64| number.to_string() == text);
        number.map(Self).ok_or_else(|| ParseTokenError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_only_canonical_numbers() {
        for number in [0, 7, (1 << 53) - 1, u64::MAX] {
            assert_eq!(number.to_string().parse(), Ok(Token::new(number)));
        }
        for text in ["", " 7", "+7", "-7", "07", "7.0", "0x7", "18446744073709551616", "٧"] {
            let error = text.parse::<Token>().expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}

//! Fencing tokens.

use std::{fmt, str::FromStr};

/// Number of bits below a token's epoch. An epoch is one second and has 2^20
/// tokens.
pub const SEQ_BITS: u32 = 20;

/// Number of bits of an epoch. Tokens are below 2^53, so that they are exact in
/// every language.
const EPOCH_BITS: u32 = 53 - SEQ_BITS;

/// Exclusive upper bound of tokens.
pub const TOKEN_END: u64 = 1 << (EPOCH_BITS + SEQ_BITS);

/// Fencing token of a grant: higher than the token of every earlier grant of the
/// same lock. Tokens of different locks can't be compared.
///
/// A token is written as a decimal number and fits into 53 bits, so that it
/// also survives JSON and a database's BIGINT.
///
/// ```
/// use leasehold_types::Token;
///
/// let token: Token = "7".parse()?;
/// assert!(token > Token::new(6));
/// assert_eq!(u64::from(token), 7);
/// # Ok::<(), leasehold_types::ParseTokenError>(())
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

    /// Creates a token from a stored number. `None` if it exceeds 53 bits.
    #[must_use]
    pub const fn from_stored(number: u64) -> Option<Self> {
        if number < TOKEN_END { Some(Self(number)) } else { None }
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

/// Durable tokens that were not issued yet, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    next: u64,
    end: u64,
}

impl TokenRange {
    /// Creates the range of all tokens of an epoch. Empty if the epoch exceeds 33
    /// bits.
    #[must_use]
    pub const fn from_epoch(epoch: u64) -> Self {
        if epoch >= 1 << EPOCH_BITS {
            return Self::none();
        }
        Self { next: epoch << SEQ_BITS, end: (epoch + 1) << SEQ_BITS }
    }

    /// Creates an empty range.
    #[must_use]
    pub const fn none() -> Self {
        Self { next: 0, end: 0 }
    }

    /// Creates the range of `count` tokens that begins with `first`. Empty if it
    /// exceeds 53 bits.
    #[must_use]
    pub const fn from(first: u64, count: u64) -> Self {
        if first > TOKEN_END - count {
            return Self::none();
        }
        Self { next: first, end: first + count }
    }

    /// Returns the lowest and the highest token. Meaningless if the range is empty.
    #[must_use]
    pub const fn bounds(&self) -> (u64, u64) {
        (self.next, self.end.saturating_sub(1))
    }

    /// Removes and returns the lowest token.
    pub const fn take(&mut self) -> Option<Token> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        Some(Token(self.next - 1))
    }

    /// Removes and returns the lowest `count` tokens, or all if there are fewer.
    pub fn split(&mut self, count: u64) -> Self {
        let middle = self.end.min(self.next + count);
        let taken = Self { next: self.next, end: middle };
        self.next = middle;
        taken
    }

    /// Returns the number of tokens.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end - self.next
    }

    /// Returns true if no token is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.next == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_adjacent_without_overlap() {
        let (mut first, mut second) = (TokenRange::from_epoch(7), TokenRange::from_epoch(8));
        assert_eq!(first.len(), 1 << 20);
        let last = std::iter::from_fn(|| first.take()).last().unwrap();
        assert_eq!(last.get() + 1, second.take().unwrap().get());
    }

    #[test]
    fn tokens_are_exact_in_javascript() {
        let mut last_epoch = TokenRange::from_epoch((1 << 33) - 1);
        let last = std::iter::from_fn(|| last_epoch.take()).last().unwrap();
        assert_eq!(last.get(), (1 << 53) - 1);
        assert!(TokenRange::from_epoch(1 << 33).is_empty());
    }

    #[test]
    fn split_takes_lowest_tokens() {
        let mut tokens = TokenRange::from_epoch(1);
        let taken = tokens.split(16);
        assert_eq!(taken.len(), 16);
        assert_eq!(tokens.len(), (1 << 20) - 16);
        assert!(taken.end == tokens.next);
        assert_eq!(tokens.split(u64::MAX >> 1).len(), (1 << 20) - 16);
        assert!(tokens.is_empty());
    }

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

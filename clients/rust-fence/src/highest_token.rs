//! Token comparison that every fenced resource makes.

use leasehold_client::Token;

/// Highest token of one lock that a resource has seen. For resources that can
/// store it themselves.
///
/// **Persist it before you act on it** if the resource outlives the process.
/// Otherwise a restart admits stale holders again. **Admit and act in one step**,
/// for example under one mutex. Otherwise the action of an older holder can follow
/// that of a newer one.
///
/// ```
/// use leasehold_client::Token;
/// use leasehold_fence::{Admitted, HighestToken};
///
/// let mut highest = HighestToken::default();     // or the persisted token
/// assert_eq!(highest.admit(Token::new(7)), Ok(Admitted::Raised));     // persist 7, then act
/// assert_eq!(highest.admit(Token::new(7)), Ok(Admitted::Current));    // act
/// assert!(highest.admit(Token::new(6)).is_err());                     // refuse
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HighestToken(Token);

/// Result of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admitted {
    /// The token is higher than all before. Persist it before you act.
    Raised,
    /// The token is the highest seen, and was seen before.
    Current,
}

/// Refusal of a token lower than the highest token seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("token {token} is stale: {newer} was seen. Stop, and acquire the lock again")]
pub struct StaleToken {
    /// Presented token.
    pub token: Token,
    /// Highest token seen.
    pub newer: Token,
}

impl HighestToken {
    /// Creates it from the persisted token; 0 if none was persisted.
    #[must_use]
    pub const fn new(token: Token) -> Self {
        Self(token)
    }

    /// Returns the highest token seen; 0 if none was seen.
    #[must_use]
    pub const fn get(self) -> Token {
        self.0
    }

    /// Admits the holder of this token, and raises the highest token if needed.
    ///
    /// # Errors
    /// [`StaleToken`] if a higher token was seen. Then the value does not change.
    pub const fn admit(&mut self, token: Token) -> Result<Admitted, StaleToken> {
        if token.get() < self.0.get() {
            return Err(StaleToken { token, newer: self.0 });
        }
        if token.get() == self.0.get() {
            return Ok(Admitted::Current);
        }
        self.0 = token;
        Ok(Admitted::Raised)
    }
}

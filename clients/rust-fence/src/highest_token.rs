//! Comparison that every fenced resource makes.

use leasehold_client::Token;

/// The highest token that a resource has seen of one lock. For resources that
/// have a place of their own to keep it in.
///
/// **Persist it before acting on it**, if the resource outlasts the process:
/// a memory that a restart takes away admits anybody again. And **admit and act
/// in one step**: if something can come in between, an older holder's action
/// may come after a newer one's.
///
/// ```
/// use leasehold_client::Token;
/// use leasehold_fence::{Admitted, HighestToken};
///
/// let mut highest = HighestToken::default();     // or what was persisted
/// assert_eq!(highest.admit(Token::new(7)), Ok(Admitted::Raised));     // persist 7, then act
/// assert_eq!(highest.admit(Token::new(7)), Ok(Admitted::Current));      // act
/// assert!(highest.admit(Token::new(6)).is_err());                     // refuse
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HighestToken(Token);

/// Why somebody was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admitted {
    /// The token is the highest so far: persist it first.
    Raised,
    /// The token was seen before, and none that is greater.
    Current,
}

/// Refused: a newer holder was here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("token {token} is stale: {newer} was seen. Stop, and acquire the lock again")]
pub struct StaleToken {
    /// What was presented.
    pub token: Token,
    /// The highest that was seen.
    pub newer: Token,
}

impl HighestToken {
    /// What is known of old; 0 if nothing is.
    #[must_use]
    pub const fn new(token: Token) -> Self {
        Self(token)
    }

    /// The highest so far; 0 if there was none.
    #[must_use]
    pub const fn get(self) -> Token {
        self.0
    }

    /// Whether the holder of this token may act.
    ///
    /// # Errors
    /// [`StaleToken`] if a greater one was seen. Nothing has changed then.
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

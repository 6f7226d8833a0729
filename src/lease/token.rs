//! Fencing tokens.

use std::fmt;

/// How many tokens an epoch has: `seq` takes the lowest 20 bits.
pub(super) const SEQ_BITS: u32 = 20;

/// Tokens stay below 2^53, so that they are exact in every language.
const EPOCH_BITS: u32 = 53 - SEQ_BITS;

/// A number that only ever grows: each grant of a lock has a greater one than
/// every grant of that lock before. `epoch << 20 | seq`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// A token that was stored; none if it is beyond what tokens can carry.
    #[must_use]
    pub const fn stored(number: u64) -> Option<Self> {
        if number < 1 << (EPOCH_BITS + SEQ_BITS) { Some(Self(number)) } else { None }
    }

    /// The number, as it is shown and compared.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}:{})", self.0 >> SEQ_BITS, self.0 & ((1 << SEQ_BITS) - 1))
    }
}

/// Tokens that were made durable and are not used yet, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    next: u64,
    end: u64,
}

impl Tokens {
    /// All tokens of an epoch; none if the epoch is beyond what tokens can
    /// carry.
    #[must_use]
    pub const fn of_epoch(epoch: u64) -> Self {
        if epoch >= 1 << EPOCH_BITS {
            return Self::none();
        }
        Self { next: epoch << SEQ_BITS, end: (epoch + 1) << SEQ_BITS }
    }

    /// No tokens.
    #[must_use]
    pub const fn none() -> Self {
        Self { next: 0, end: 0 }
    }

    /// `count` tokens from this one on; none if that is beyond what tokens can
    /// carry.
    #[must_use]
    pub const fn from(first: u64, count: u64) -> Self {
        if first > (1 << (EPOCH_BITS + SEQ_BITS)) - count {
            return Self::none();
        }
        Self { next: first, end: first + count }
    }

    /// The lowest and the greatest, if there are any.
    #[must_use]
    pub const fn bounds(&self) -> (u64, u64) {
        (self.next, self.end.saturating_sub(1))
    }

    /// Takes the lowest.
    pub const fn take(&mut self) -> Option<Token> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        Some(Token(self.next - 1))
    }

    /// Takes the lowest `count`, or as many as there are.
    pub fn split(&mut self, count: u64) -> Self {
        let middle = self.end.min(self.next + count);
        let taken = Self { next: self.next, end: middle };
        self.next = middle;
        taken
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end - self.next
    }

    /// Whether none is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.next == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_follow_each_other_without_gap_or_overlap() {
        let (mut first, mut second) = (Tokens::of_epoch(7), Tokens::of_epoch(8));
        assert_eq!(first.len(), 1 << 20);
        let last = std::iter::from_fn(|| first.take()).last().unwrap();
        assert_eq!(last.get() + 1, second.take().unwrap().get());
    }

    #[test]
    fn tokens_are_exact_in_javascript() {
        let mut last_epoch = Tokens::of_epoch((1 << 33) - 1);
        let last = std::iter::from_fn(|| last_epoch.take()).last().unwrap();
        assert_eq!(last.get(), (1 << 53) - 1);
        assert!(Tokens::of_epoch(1 << 33).is_empty());
    }

    #[test]
    fn splitting_takes_from_below() {
        let mut tokens = Tokens::of_epoch(1);
        let slice = tokens.split(16);
        assert_eq!(slice.len(), 16);
        assert_eq!(tokens.len(), (1 << 20) - 16);
        assert!(slice.end == tokens.next);
        assert_eq!(tokens.split(u64::MAX >> 1).len(), (1 << 20) - 16);
        assert!(tokens.is_empty());
    }
}

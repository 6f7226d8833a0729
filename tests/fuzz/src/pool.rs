//! Pool of inputs to mutate: one for each kind of outcome.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::rng::Rng;

/// Maximum number of kinds; a target with more describes too many details.
const MAX_KINDS: usize = 4096;

#[derive(Default)]
pub(crate) struct Pool {
    inputs: Vec<Vec<u8>>,
    seen: HashSet<u64>,
}

impl Pool {
    /// Adds an input if its kind of outcome is new.
    pub(crate) fn learn(&mut self, input: &[u8], outcome: &str) -> bool {
        let new = self.seen.len() < MAX_KINDS && self.seen.insert(kind(outcome));
        if new {
            self.inputs.push(input.to_vec());
        }
        new
    }

    /// Returns an input; prefers recent ones, because they were derived from
    /// others.
    pub(crate) fn pick(&self, rng: &mut Rng) -> &[u8] {
        let count = self.inputs.len();
        let at =
            if rng.one_in(2) { rng.below(count) } else { count - 1 - rng.below(count.min(16)) };
        &self.inputs[at]
    }

    pub(crate) fn kinds(&self) -> usize {
        self.seen.len()
    }
}

/// Returns the kind of a description. Numbers and quoted text are ignored
/// because they come from the input.
fn kind(outcome: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut quoted = false;
    let mut before = ' ';
    for c in outcome.chars() {
        quoted ^= c == '"' && before != '\\';
        let c = if c.is_ascii_digit() { '0' } else { c };
        let is_repeated = c == '0' && before == '0';
        if !quoted && !is_repeated {
            c.hash(&mut hasher);
        }
        before = c;
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_ignores_numbers_and_quotes() {
        assert_eq!(kind("has 12 bytes"), kind("has 7 bytes"));
        assert_eq!(kind(r#"no "a\"b" here"#), kind(r#"no "c" here"#));
        assert_ne!(kind("no"), kind("yes"));
        let mut pool = Pool::default();
        assert!(pool.learn(b"x", "part 1"));
        assert!(!pool.learn(b"y", "part 22"));
        assert_eq!(pool.pick(&mut Rng::new(1)), b"x");
    }
}

//! The inputs that are changed further: one for each kind of outcome.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::rng::Rng;

/// More kinds than this are a target that says too much.
const MOST: usize = 4096;

#[derive(Default)]
pub(crate) struct Pool {
    inputs: Vec<Vec<u8>>,
    seen: HashSet<u64>,
}

impl Pool {
    /// Takes up an input if what was said about it is new.
    pub(crate) fn learn(&mut self, input: &[u8], said: &str) -> bool {
        let new = self.seen.len() < MOST && self.seen.insert(kind(said));
        if new {
            self.inputs.push(input.to_vec());
        }
        new
    }

    /// The later ones more often: they are what others have led to.
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

/// Numbers and what is quoted come from the input: they make no other kind.
fn kind(said: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut quoted = false;
    let mut before = ' ';
    for c in said.chars() {
        quoted ^= c == '"' && before != '\\';
        let c = if c.is_ascii_digit() { '0' } else { c };
        let again = c == '0' && before == '0';
        if !quoted && !again {
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
    fn numbers_and_quotes_make_no_other_kind() {
        assert_eq!(kind("has 12 bytes"), kind("has 7 bytes"));
        assert_eq!(kind(r#"no "a\"b" here"#), kind(r#"no "c" here"#));
        assert_ne!(kind("no"), kind("yes"));
        let mut pool = Pool::default();
        assert!(pool.learn(b"x", "part 1"));
        assert!(!pool.learn(b"y", "part 22"));
        assert_eq!(pool.pick(&mut Rng::new(1)), b"x");
    }
}

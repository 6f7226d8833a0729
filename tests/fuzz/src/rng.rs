//! Deterministic random numbers.

/// Random number generator with a seed.
pub(crate) struct Rng(fastrand::Rng);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    /// Returns true with probability 1/`times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// Returns a number that is often a boundary value.
    pub(crate) fn number(&mut self) -> u64 {
        let near = |rng: &mut Self| (rng.below(5) as u64).wrapping_sub(2);
        match self.below(8) {
            0 => self.next(),
            1 => 0_u64.wrapping_add(near(self)),
            2 => self.below(300) as u64,
            3 => *self.pick(&ROUND).unwrap_or(&0),
            4 => self.pick(&ROUND).unwrap_or(&0).wrapping_add(near(self)),
            _ => (1_u64 << self.below(64)).wrapping_add(near(self)),
        }
    }
}

/// Limits of the protocol and of the storage.
const ROUND: [u64; 11] =
    [16, 63, 256, 1000, 1024, 4096, 8192, 15_000, 60_000, 64 * 1024, u32::MAX as u64];

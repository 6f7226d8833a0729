//! Numbers that a seed repeats.

/// A stream of numbers (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`; 0 if that is 0.
    pub(crate) const fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    /// One in so many times.
    pub(crate) const fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// A number at a border more often than not.
    pub(crate) fn number(&mut self) -> u64 {
        let near = |dice: &mut Self| (dice.below(5) as u64).wrapping_sub(2);
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

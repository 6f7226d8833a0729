//! Randomness that repeats itself: everything that a simulation decides comes
//! from its seed.

use std::{ops::Range, time::Duration};

use crate::world::{MILLISECOND, Nanos};

/// A generator of numbers (splitmix64): small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Another generator, which goes its own way.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.bits())
    }

    /// Any number.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.bits() % (range.end - range.start).max(1)
    }

    /// An index below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        self.within(0..count as u64) as usize
    }

    /// True in so many of a thousand cases.
    pub fn permille(&mut self, share: u64) -> bool {
        self.within(0..1000) < share
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// A length in milliseconds, with some nanoseconds so that few things happen
    /// at the very same time.
    pub fn millis(&mut self, range: Range<u64>) -> Nanos {
        self.within(range.start * MILLISECOND..range.end * MILLISECOND)
    }

    /// The same as a duration.
    pub fn length(&mut self, range: Range<u64>) -> Duration {
        Duration::from_nanos(self.millis(range))
    }
}

//! Deterministic random numbers: every decision of a simulation is drawn from
//! its seed.

use std::{ops::Range, time::Duration};

use crate::world::{MILLISECOND, Nanos};

/// Random number generator (splitmix64), independent of the platform.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns an independent generator.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.bits())
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from a non-empty range.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.bits() % (range.end - range.start).max(1)
    }

    /// Returns an index below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        self.within(0..count as u64) as usize
    }

    /// Returns true with this probability, in permille.
    pub fn permille(&mut self, share: u64) -> bool {
        self.within(0..1000) < share
    }

    /// Returns one of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// Returns a length from a range in milliseconds, with a random number of
    /// nanoseconds so that few events coincide.
    pub fn millis(&mut self, range: Range<u64>) -> Nanos {
        self.within(range.start * MILLISECOND..range.end * MILLISECOND)
    }

    /// Same as [`Self::millis`], as a [`Duration`].
    pub fn length(&mut self, range: Range<u64>) -> Duration {
        Duration::from_nanos(self.millis(range))
    }
}

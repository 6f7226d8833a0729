//! Randomness: secrets, jitter and the seeds of hash maps.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};

/// How maps scatter their keys: unguessably, and in a simulation each time alike.
#[cfg(not(feature = "simulation"))]
pub type Hashing = hashbrown::DefaultHashBuilder;
/// How maps scatter their keys: unguessably, and in a simulation each time alike.
#[cfg(feature = "simulation")]
pub type Hashing = foldhash::fast::FixedState;

/// A map that may be iterated over.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, Hashing>;

/// Where unguessable ids and jitter come from: a generator fit for secrets,
/// seeded by the operating system, or by a number so that a test can repeat
/// itself.
pub struct Entropy(StdRng);

impl Entropy {
    /// Seeded by the operating system.
    pub fn system() -> Result<Self, std::io::Error> {
        StdRng::try_from_rng(&mut rand::rngs::SysRng).map(Self).map_err(std::io::Error::other)
    }

    /// The same numbers for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Another source, seeded by this one.
    #[must_use]
    pub fn seeded_by(other: &mut Self) -> Self {
        Self(StdRng::from_rng(&mut other.0))
    }

    /// 128 random bits.
    pub fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        u128::from_le_bytes(bytes)
    }

    /// A length between three quarters of `length` and the whole of it, so that
    /// what was started together does not stay together.
    pub fn jitter(&mut self, length: Duration) -> Duration {
        let share = u32::from(self.0.next_u32() as u16);
        length - length / 4 * share / u32::from(u16::MAX)
    }
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_only_shortens() {
        let mut entropy = Entropy::seeded(7);
        for _ in 0..1000 {
            let jittered = entropy.jitter(Duration::from_secs(8));
            assert!((Duration::from_secs(6)..=Duration::from_secs(8)).contains(&jittered));
        }
    }

    #[test]
    fn a_seed_repeats_itself_and_the_system_does_not() {
        assert_eq!(Entropy::seeded(1).bits(), Entropy::seeded(1).bits());
        assert_ne!(Entropy::system().unwrap().bits(), Entropy::system().unwrap().bits());
    }
}

//! Randomness: secrets, jitter and the seeds of hash maps.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};

/// Hash builder of [`HashMap`], with a random seed.
#[cfg(not(feature = "simulation"))]
pub type HashBuilder = hashbrown::DefaultHashBuilder;
/// Hash builder of [`HashMap`], deterministic in simulations.
#[cfg(feature = "simulation")]
pub type HashBuilder = foldhash::fast::FixedState;

/// Hash map whose order of iteration is deterministic in simulations.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, HashBuilder>;

/// Source of secrets and jitter: a cryptographic generator, seeded by the
/// operating system, or by a number for reproducible tests.
pub struct Entropy(StdRng);

impl Entropy {
    /// Creates a source that is seeded by the operating system.
    pub fn system() -> Result<Self, std::io::Error> {
        StdRng::try_from_rng(&mut rand::rngs::SysRng).map(Self).map_err(std::io::Error::other)
    }

    /// Creates a deterministic source.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Creates a source that is seeded by another one.
    #[must_use]
    pub fn seeded_by(other: &mut Self) -> Self {
        Self(StdRng::from_rng(&mut other.0))
    }

    /// Returns 128 random bits.
    pub fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        u128::from_le_bytes(bytes)
    }

    /// Returns a random duration between 75% and 100% of `max`, so that
    /// simultaneous timers diverge.
    pub fn jitter(&mut self, max: Duration) -> Duration {
        let share = u32::from(self.0.next_u32() as u16);
        max - max / 4 * share / u32::from(u16::MAX)
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
    fn jitter_is_between_75_and_100_percent() {
        let mut entropy = Entropy::seeded(7);
        for _ in 0..1000 {
            let jittered = entropy.jitter(Duration::from_secs(8));
            assert!((Duration::from_secs(6)..=Duration::from_secs(8)).contains(&jittered));
        }
    }

    #[test]
    fn seeded_source_is_deterministic_and_system_source_is_not() {
        assert_eq!(Entropy::seeded(1).bits(), Entropy::seeded(1).bits());
        assert_ne!(Entropy::system().unwrap().bits(), Entropy::system().unwrap().bits());
    }
}

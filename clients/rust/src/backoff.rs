//! Delay before the next attempt.

use std::time::Duration;

use leasehold_time::clock::process_seed;

/// Exponential backoff with jitter, which spreads the clients of a restarted
/// daemon over time.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
    seed: u64,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min, seed: process_seed() }
    }

    /// Returns the backoff of attempts to reach the daemon.
    pub(crate) fn to_daemon() -> Self {
        Self::new(Duration::from_millis(25), Duration::from_secs(1))
    }

    /// Resets the delay to its minimum.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }

    /// Returns the next delay: `at_least`, plus between half and all of the
    /// current backoff. The jitter applies to `at_least` too, because the daemon
    /// may have sent the same value to all of its clients.
    pub(crate) fn next(&mut self, at_least: Duration) -> Duration {
        let length = self.next;
        self.next = (length * 2).min(self.max);
        let jittered = length / 2 + length.mul_f64(self.fraction() / 2.0);
        at_least.saturating_add(jittered)
    }

    /// Returns a pseudorandom number, uniform over 0 to 1 (splitmix64).
    fn fraction(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_maximum_and_resets() {
        let mut backoff = Backoff::to_daemon();
        for full in [25, 50, 100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let length = backoff.next(Duration::ZERO);
            assert!(length >= full / 2 && length <= full, "{length:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next(Duration::ZERO) <= Duration::from_millis(25));
    }

    #[test]
    fn requested_delay_is_the_minimum() {
        let (requested, length) = (Duration::from_secs(7), Duration::from_secs(2));
        let delay = Backoff::new(length, length).next(requested);
        assert!(delay >= requested + length / 2 && delay <= requested + length, "{delay:?}");
    }
}

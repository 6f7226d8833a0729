//! How long to wait before the next attempt.

use std::time::Duration;

use leasehold_time::clock::scatter;

/// Doubles from attempt to attempt, with jitter, so that the clients of a
/// daemon that comes back don't all arrive at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
    seed: u64,
}

impl Backoff {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, next: shortest, seed: scatter() }
    }

    /// For attempts to reach the daemon.
    pub(crate) fn to_daemon() -> Self {
        Self::new(Duration::from_millis(25), Duration::from_secs(1))
    }

    /// After an attempt that has proved itself.
    pub(crate) fn start_over(&mut self) {
        self.next = self.shortest;
    }

    /// Between half of the present length and all of it, on top of what was
    /// asked for: the daemon may have told all its clients the same.
    pub(crate) fn next(&mut self, at_least: Duration) -> Duration {
        let length = self.next;
        self.next = (length * 2).min(self.longest);
        let jittered = length / 2 + length.mul_f64(self.fraction() / 2.0);
        at_least.saturating_add(jittered)
    }

    /// The next of an even spread over 0 to 1 (splitmix64).
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
    fn it_doubles_up_to_its_longest_and_starts_over() {
        let mut backoff = Backoff::to_daemon();
        for full in [25, 50, 100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let length = backoff.next(Duration::ZERO);
            assert!(length >= full / 2 && length <= full, "{length:?} of {full:?}");
        }
        backoff.start_over();
        assert!(backoff.next(Duration::ZERO) <= Duration::from_millis(25));
    }

    #[test]
    fn what_is_asked_for_is_the_least() {
        let (asked, length) = (Duration::from_secs(7), Duration::from_secs(2));
        let pause = Backoff::new(length, length).next(asked);
        assert!(pause >= asked + length / 2 && pause <= asked + length, "{pause:?}");
    }
}

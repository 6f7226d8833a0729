//! How long to wait before the next attempt to reach the daemon.

use std::time::Duration;

use crate::clock::Moment;

const SHORTEST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_secs(1);

/// Doubles from attempt to attempt, with jitter, so that the clients of a
/// daemon that comes back don't all arrive at once.
pub(super) struct Backoff {
    next: Duration,
    seed: u64,
}

impl Backoff {
    pub(super) fn new() -> Self {
        let since_boot = Moment::now().since(Moment::from_boot(Duration::ZERO));
        let seed = (since_boot.as_nanos() as u64) ^ u64::from(std::process::id()).rotate_left(32);
        Self { next: SHORTEST, seed }
    }

    pub(super) fn reset(&mut self) {
        self.next = SHORTEST;
    }

    /// Between half of the present length and all of it.
    pub(super) fn next(&mut self) -> Duration {
        let length = self.next;
        self.next = (length * 2).min(LONGEST);
        length / 2 + length.mul_f64(self.fraction() / 2.0)
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
    fn it_doubles_up_to_a_second_and_starts_over() {
        let mut backoff = Backoff::new();
        for full in [25, 50, 100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let length = backoff.next();
            assert!(length >= full / 2 && length <= full, "{length:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= SHORTEST);
    }
}

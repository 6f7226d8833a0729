//! How long to wait before the next attempt to reach the daemon.

use std::time::Duration;

use crate::clock::Moment;

const SHORTEST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_secs(1);
/// A stream that lives for this long has served somebody.
const PROOF: Duration = Duration::from_secs(1);

/// How a stream did.
#[derive(Clone, Copy)]
pub(super) struct Life {
    pub(super) began: Moment,
    /// Whether a keep-alive was answered.
    pub(super) kept_alive: bool,
}

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

    /// Starts over after a stream that has proved itself. A daemon that begins
    /// streams only to end them is not to be asked without a pause.
    pub(super) fn ended(&mut self, life: Life, now: Moment) {
        if life.kept_alive || now.since(life.began) >= PROOF {
            self.next = SHORTEST;
        }
    }

    /// Between half of the present length and all of it, on top of what the
    /// daemon asked for: it may have told all its clients the same.
    pub(super) fn next(&mut self, retry_after: Duration) -> Duration {
        let length = self.next;
        self.next = (length * 2).min(LONGEST);
        let jittered = length / 2 + length.mul_f64(self.fraction() / 2.0);
        retry_after.saturating_add(jittered)
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
    fn it_doubles_up_to_a_second_and_starts_over_after_a_stream_that_served() {
        let began = Moment::from_boot(Duration::from_secs(1000));
        let mut backoff = Backoff::new();
        for full in [25, 50, 100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let length = backoff.next(Duration::ZERO);
            assert!(length >= full / 2 && length <= full, "{length:?} of {full:?}");
        }
        backoff.ended(Life { began, kept_alive: false }, began + PROOF / 2);
        assert!(backoff.next(Duration::ZERO) >= LONGEST / 2, "it only began");
        backoff.ended(Life { began, kept_alive: true }, began + PROOF / 2);
        assert!(backoff.next(Duration::ZERO) <= SHORTEST);
        backoff.ended(Life { began, kept_alive: false }, began + PROOF);
        assert!(backoff.next(Duration::ZERO) <= SHORTEST);
    }

    #[test]
    fn what_the_daemon_asks_for_is_the_least() {
        let asked = Duration::from_secs(7);
        let pause = Backoff::new().next(asked);
        assert!(pause >= asked + SHORTEST / 2 && pause <= asked + SHORTEST, "{pause:?}");
    }
}

//! Detection of clock jumps, which show that this machine may have been paused.

use std::time::Duration;

use leasehold_time::ClockPair;

use crate::{carried_jump, clock_jump};

/// Minimum jump to report. A smaller one is an adjustment of the wall clock. Unreported
/// jumps and tolerated drift must together fit into a lease's margin of at least 1 s.
const MIN_JUMP: Duration = Duration::from_millis(900);

/// Age of the reference reading after which drift is subtracted from small jumps.
const DRIFT_WINDOW: Duration = Duration::from_secs(10);

/// Detector of clock jumps: the wall clock advances relative to the boot-time
/// clock, on which deadlines are counted (safety rule 5). Contains the reference
/// reading.
#[derive(Clone, Copy, Debug)]
pub struct JumpDetector(ClockPair);

impl JumpDetector {
    /// Creates a detector of the jumps after `here`.
    #[must_use]
    pub const fn since(here: ClockPair) -> Self {
        Self(here)
    }

    /// Returns the clock jump since the last reported one, if it exceeds `MIN_JUMP`.
    /// Reports each jump once. Small jumps accumulate; tolerated drift is subtracted.
    pub fn check(&mut self, here: ClockPair) -> Option<Duration> {
        let jump = self.peek(&here);
        if jump.is_some() || self.0.lag_until(&here) > MIN_JUMP {
            // A wall clock that was set back can jump again from its new time.
            self.0 = here;
            return jump;
        }
        if here.at() > self.0.at() + DRIFT_WINDOW {
            let age = here.at().since(self.0.at());
            let small = clock_jump(&self.0, &here);
            self.0 = here.with_wall_behind(carried_jump(small, age));
        }
        None
    }

    /// Returns the same as [`Self::check`], without marking the jump as reported.
    #[must_use]
    pub fn peek(&self, here: &ClockPair) -> Option<Duration> {
        Some(clock_jump(&self.0, here)).filter(|jump| *jump > MIN_JUMP)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use leasehold_time::Moment;
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Returns a reading of both clocks, in milliseconds.
    fn at(moment: u64, wall: u64) -> ClockPair {
        let millis = Duration::from_millis;
        ClockPair::new(Moment::from_boot(millis(moment)), UNIX_EPOCH + millis(wall))
    }

    const START: u64 = 1_000_000;

    /// Returns the jump that each check reports, in milliseconds. A check is given
    /// by its time since the start, and by the lead of the wall clock then.
    fn reported(checks: &[(u64, i64)]) -> Vec<Option<u64>> {
        let mut jumps = JumpDetector::since(at(START, START));
        let check = |&(after, lead): &(u64, i64)| {
            let here = START + after;
            let jump = jumps.check(at(here, here.saturating_add_signed(lead)));
            jump.map(|jump| jump.as_millis() as u64)
        };
        checks.iter().map(check).collect()
    }

    #[test]
    fn jump_is_reported_once() {
        assert_eq!(reported(&[(100, 60_000), (200, 60_000)]), [Some(60_000), None]);
        assert_eq!(reported(&[(100, 2000), (200, 4000)]), [Some(2000), Some(2000)]);
        let jumps = JumpDetector::since(at(START, START));
        let later = at(START, START + 5000);
        assert_eq!(jumps.peek(&later), Some(Duration::from_secs(5)));
        assert_eq!(jumps.peek(&later), Some(Duration::from_secs(5)), "not reported yet");
    }

    #[test]
    fn small_jumps_add_up_over_any_time() {
        assert_eq!(reported(&[(1000, 400), (2000, 800), (3000, 1200)]), [None, None, Some(1200)]);
        // A 500th of each window may be drift.
        let checks = [(11_000, 400), (22_000, 800), (33_000, 1200)];
        assert_eq!(reported(&checks), [None, None, Some(1156)]);
        // Frequent checks change nothing.
        let often: Vec<_> = (1..300_u64).map(|n| (n * 100, n as i64 * 5)).collect();
        assert_eq!(reported(&often).iter().flatten().count(), 1);
    }

    proptest! {
        /// The shortest leases (15 s) have the smallest margin (1 s): jumps within
        /// one of them that are not reported must stay below it.
        #[test]
        fn undetected_clock_jumps_stay_within_margin(
            steps in vec((0..4000_u64, prop_oneof![0..1000_u64, 0..100_u64]), 1..60),
        ) {
            let mut jumps = JumpDetector::since(at(START, START));
            let (mut here, mut lead) = (START, 0);
            // Time, jump at that time, and the jump reported then.
            let mut past: Vec<(u64, u64, u64)> = Vec::new();
            for (gap, jump) in steps {
                (here, lead) = (here + gap, lead + jump);
                let reported = jumps.check(at(here, here + lead));
                past.push((here, jump, reported.map_or(0, |jump| jump.as_millis() as u64)));
                let (mut actual_sum, mut reported_sum) = (0, 0);
                for (then, actual, reported) in past.iter().rev() {
                    (actual_sum, reported_sum) = (actual_sum + actual, reported_sum + reported);
                    if here - then <= 15_000 {
                        prop_assert!(actual_sum.saturating_sub(reported_sum) < 1000, "{past:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn drift_is_not_reported() {
        let day: Vec<_> = (1..=86_400_u64).map(|n| (n * 1000, n as i64 * 2)).collect();
        assert!(reported(&day).iter().all(Option::is_none));
    }

    #[test]
    fn jump_after_clock_was_set_back_is_reported() {
        let checks = [(100, -20_000), (200, -20_000), (300, -15_000)];
        assert_eq!(reported(&checks), [None, None, Some(5000)]);
    }
}

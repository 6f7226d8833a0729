//! Whether this machine was frozen from outside, as far as its wall clock tells.

use std::time::Duration;

use leasehold_time::ClockPair;

use crate::{carried_jump, clock_jump, rules::DRIFT};

/// A wall clock that runs ahead by less than this is being adjusted; by more,
/// this machine may have been frozen. What is not told must fit into a lease's
/// margin, of a second at least, with what is forgotten as drift meanwhile.
const MIN_JUMP: Duration = Duration::from_millis(900);

/// How long it may be until small leaps are put together.
const DRIFT_WINDOW: Duration = Duration::from_secs(10);

/// Watches for leaps of the wall clock ahead of the clock that deadlines are
/// counted on (safety rule 5).
#[derive(Clone, Copy, Debug)]
pub struct JumpDetector(ClockPair);

impl JumpDetector {
    /// Those from here on.
    #[must_use]
    pub const fn since(here: ClockPair) -> Self {
        Self(here)
    }

    /// How far the wall clock has leapt since, if by more than an adjustment. Tells
    /// it once, and then counts anew. Small leaps add up, but for what drift
    /// explains.
    pub fn check(&mut self, here: ClockPair) -> Option<Duration> {
        let leapt = self.peek(&here);
        if leapt.is_some() || self.0.lag_until(&here) > MIN_JUMP {
            // If it was set back: from there on it may leap again.
            self.0 = here;
            return leapt;
        }
        let age = here.at().since(self.0.at());
        if age > DRIFT_WINDOW {
            let small = clock_jump(&self.0, &here).saturating_sub(age / DRIFT);
            self.0 = here.less(carried_jump(small));
        }
        None
    }

    /// The same, which is still to be told.
    #[must_use]
    pub fn peek(&self, here: &ClockPair) -> Option<Duration> {
        Some(clock_jump(&self.0, here)).filter(|leap| *leap > MIN_JUMP)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use leasehold_time::Moment;
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// After so many milliseconds on one clock, and so many on the wall.
    fn at(moment: u64, wall: u64) -> ClockPair {
        let millis = Duration::from_millis;
        ClockPair::new(Moment::from_boot(millis(moment)), UNIX_EPOCH + millis(wall))
    }

    const BEGINNING: u64 = 1_000_000;

    /// What is told at each of these looks: so many milliseconds after the
    /// beginning, with a wall clock that is ahead by so many since then.
    fn told(looks: &[(u64, i64)]) -> Vec<Option<u64>> {
        let mut leaps = JumpDetector::since(at(BEGINNING, BEGINNING));
        let look = |&(after, ahead): &(u64, i64)| {
            let here = BEGINNING + after;
            let leap = leaps.check(at(here, here.saturating_add_signed(ahead)));
            leap.map(|leap| leap.as_millis() as u64)
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_leap_is_told_once() {
        assert_eq!(told(&[(100, 60_000), (200, 60_000)]), [Some(60_000), None]);
        assert_eq!(told(&[(100, 2000), (200, 4000)]), [Some(2000), Some(2000)]);
        let leaps = JumpDetector::since(at(BEGINNING, BEGINNING));
        let later = at(BEGINNING, BEGINNING + 5000);
        assert_eq!(leaps.peek(&later), Some(Duration::from_secs(5)));
        assert_eq!(leaps.peek(&later), Some(Duration::from_secs(5)), "not told yet");
    }

    #[test]
    fn small_leaps_add_up_however_long_it_takes() {
        assert_eq!(told(&[(1000, 400), (2000, 800), (3000, 1200)]), [None, None, Some(1200)]);
        // Of each ten seconds, a 500th may be drift.
        let looks = [(11_000, 400), (22_000, 800), (33_000, 1200)];
        assert_eq!(told(&looks), [None, None, Some(1156)]);
        // And however often somebody looks meanwhile.
        let often: Vec<_> = (1..300_u64).map(|n| (n * 100, n as i64 * 5)).collect();
        assert_eq!(told(&often).iter().flatten().count(), 1);
    }

    proptest! {
        /// The shortest leases have the least margin, 1 s: what was not told within
        /// one of 15 s is less than that.
        #[test]
        fn what_is_not_told_fits_into_the_margin(
            steps in vec((0..4000_u64, prop_oneof![0..1000_u64, 0..100_u64]), 1..60),
        ) {
            let mut leaps = JumpDetector::since(at(BEGINNING, BEGINNING));
            let (mut here, mut ahead) = (BEGINNING, 0);
            // When, how far it leapt, and how much of that was told.
            let mut past: Vec<(u64, u64, u64)> = Vec::new();
            for (gap, leap) in steps {
                (here, ahead) = (here + gap, ahead + leap);
                let told = leaps.check(at(here, here + ahead));
                past.push((here, leap, told.map_or(0, |told| told.as_millis() as u64)));
                let (mut leapt, mut told) = (0, 0);
                for (then, by, of_it) in past.iter().rev() {
                    (leapt, told) = (leapt + by, told + of_it);
                    if here - then <= 15_000 {
                        prop_assert!(leapt.saturating_sub(told) < 1000, "{past:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_drifts_is_not_told() {
        let day: Vec<_> = (1..=86_400_u64).map(|n| (n * 1000, n as i64 * 2)).collect();
        assert!(told(&day).iter().all(Option::is_none));
    }

    #[test]
    fn a_clock_that_was_set_back_is_watched_from_there() {
        let looks = [(100, -20_000), (200, -20_000), (300, -15_000)];
        assert_eq!(told(&looks), [None, None, Some(5000)]);
    }
}

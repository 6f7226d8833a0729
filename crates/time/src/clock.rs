//! The clock that deadlines are counted on.
//!
//! It keeps counting while the machine sleeps, so that a laptop or a virtual
//! machine that wakes up knows that its grants have ended. `suspend_proof.rs`
//! asks the operating system for that clock.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::suspend_proof;

/// An instant on a clock that keeps counting while the machine sleeps, which
/// [`std::time::Instant`] does not on most systems. Comparable only with other
/// moments of the same machine and boot; on Windows, of the same process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The present.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(feature = "simulation")]
        if let Some(now) = crate::simulation::ask(|world| world.now()) {
            return now;
        }
        // The clock is always there on the systems that this compiles for; if
        // it is not, no deadline can be trusted, so every one has passed.
        suspend_proof::now().map_or(Self(u64::MAX), Self::from_boot)
    }

    /// The moment that lies this long after the start of the clock.
    #[must_use]
    pub const fn from_boot(since: Duration) -> Self {
        // 584 years fit.
        Self(since.as_nanos() as u64)
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long it is until this moment; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// Whether this moment has been reached.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// The wall clock. For people and for comparing with itself, never for
/// deadlines.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the place that it is replaced by")]
pub fn wall() -> SystemTime {
    #[cfg(feature = "simulation")]
    if let Some(wall) = crate::simulation::ask(|world| world.wall()) {
        return wall;
    }
    SystemTime::now()
}

/// Returns the seconds of the wall clock since 1970; 0 if it is set to a time
/// before that.
#[must_use]
pub fn unix_seconds() -> u64 {
    wall().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A number that differs from process to process, and from moment to moment.
#[must_use]
pub fn scatter() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(seed) = crate::simulation::ask(|world| world.seed()) {
        return seed;
    }
    Moment::now().0 ^ u64::from(std::process::id()).rotate_left(32)
}

/// Two readings are of the same moment if no more than this is between them.
/// Whoever was kept from running in between would see a leap where there was none.
const TOGETHER: Duration = Duration::from_millis(10);

/// How often clocks are read until two readings are of the same moment.
const READS: usize = 5;

/// A point on both clocks, to notice when they drift apart: a machine that was
/// frozen from outside may wake up with a wall clock that was set right and
/// another that never noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    moment: Moment,
    wall: SystemTime,
}

impl ClockPair {
    /// What the clocks showed at one moment.
    #[must_use]
    pub const fn new(moment: Moment, wall: SystemTime) -> Self {
        Self { moment, wall }
    }

    /// Here and now.
    #[must_use]
    pub fn now() -> Self {
        let mut before = Moment::now();
        for _ in 0..READS {
            let wall = wall();
            let after = Moment::now();
            if after.since(before) < TOGETHER {
                return Self::new(before, wall);
            }
            before = after;
        }
        Self::new(before, wall())
    }

    /// On the clock that counts through suspend.
    #[must_use]
    pub const fn at(&self) -> Moment {
        self.moment
    }

    /// Reading of the wall clock.
    #[must_use]
    pub const fn wall(&self) -> SystemTime {
        self.wall
    }

    /// How far the wall clock had run ahead of the other by then.
    #[must_use]
    pub fn jump_until(&self, later: &Self) -> Duration {
        let by_wall = later.wall.duration_since(self.wall).unwrap_or_default();
        by_wall.saturating_sub(later.moment.since(self.moment))
    }

    /// How far the wall clock had fallen behind the other by then.
    #[must_use]
    pub fn lag_until(&self, later: &Self) -> Duration {
        let passed = later.moment.since(self.moment);
        match later.wall.duration_since(self.wall) {
            Ok(by_wall) => passed.saturating_sub(by_wall),
            Err(back) => passed + back.duration(),
        }
    }

    /// The same, as if the wall clock had shown this much less: so a leap of this
    /// much is still to come.
    #[must_use]
    pub fn less(self, leap: Duration) -> Self {
        Self { wall: self.wall.checked_sub(leap).unwrap_or(self.wall), ..self }
    }

    /// Creates an anchor at any moment, for tests.
    #[must_use]
    pub fn then(moment: Moment) -> Self {
        let since_boot = moment.since(Moment::from_boot(Duration::ZERO));
        Self::new(moment, SystemTime::UNIX_EPOCH + since_boot)
    }

    /// Advances the wall clock by `by`, for tests.
    #[must_use]
    pub fn leapt(self, by: Duration) -> Self {
        Self { wall: self.wall + by, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_ordered_and_never_wrap() {
        let early = Moment::from_boot(Duration::from_secs(5));
        let late = early + Duration::from_secs(3);
        assert!(late > early);
        assert_eq!(late.since(early), Duration::from_secs(3));
        assert_eq!(early.since(late), Duration::ZERO);
        assert!(late + Duration::MAX > late);
        assert_eq!(early - Duration::from_secs(9), Moment::from_boot(Duration::ZERO));
    }

    #[test]
    fn the_present_moves_on() {
        let before = Moment::now();
        assert!(before.has_passed());
        assert!(!(before + Duration::from_secs(3600)).has_passed());
    }

    #[test]
    fn a_wall_clock_that_ran_ahead_is_noticed() {
        let before = ClockPair::then(Moment::from_boot(Duration::from_secs(100)));
        let after = ClockPair::then(Moment::from_boot(Duration::from_secs(103)));
        assert_eq!(before.jump_until(&after), Duration::ZERO);
        let after = after.leapt(Duration::from_secs(60));
        assert_eq!(before.jump_until(&after), Duration::from_secs(60));
        assert_eq!(after.jump_until(&before), Duration::ZERO, "set back");
        // Small leaps can be carried on.
        let later = ClockPair::then(Moment::from_boot(Duration::from_secs(113)));
        let carried = before.less(Duration::from_millis(900));
        let leapt = later.leapt(Duration::from_millis(900));
        assert_eq!(carried.jump_until(&leapt), Duration::from_millis(1800));
        // What falls behind is seen, too.
        let ahead = before.leapt(Duration::from_secs(20));
        assert_eq!(ahead.lag_until(&later), Duration::from_secs(20));
        assert_eq!(before.lag_until(&later), Duration::ZERO);
    }
}

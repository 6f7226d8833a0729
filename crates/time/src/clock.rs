//! Clocks: the boot-time clock, on which all deadlines are measured, and the wall
//! clock.
//!
//! The boot-time clock keeps counting while the machine is suspended. After a
//! laptop or a virtual machine wakes up, its grants have therefore ended.
//! `suspend_proof.rs` reads that clock from the operating system.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::suspend_proof;

/// Instant on a clock that keeps counting while the machine is suspended. On most
/// systems, [`std::time::Instant`] does not. Comparable only with other moments
/// of the same machine and boot; on Windows, of the same process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Returns the current instant.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(feature = "simulation")]
        if let Some(now) = crate::simulation::ask(|world| world.now()) {
            return now;
        }
        // Every supported system has the clock. If it can't be read, no deadline
        // can be trusted, so every deadline counts as passed.
        Self(suspend_proof::now().unwrap_or(u64::MAX))
    }

    /// Creates the moment at this time after the start of the clock.
    #[must_use]
    pub const fn from_boot(since: Duration) -> Self {
        // Overflows after 584 years.
        Self(since.as_nanos() as u64)
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time until this moment; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// Returns whether this moment has been reached.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(to_nanos(length)))
    }
}

impl std::ops::Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(to_nanos(length)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// Returns the time of the wall clock. For output and for detecting clock jumps,
/// never for deadlines.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the only permitted use")]
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

/// Returns a seed that differs between processes and between calls.
#[must_use]
pub fn process_seed() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(seed) = crate::simulation::ask(|world| world.seed()) {
        return seed;
    }
    Moment::now().0 ^ u64::from(std::process::id()).rotate_left(32)
}

/// Maximum time between the readings of a [`ClockPair`]. A longer pause between
/// them would look like a clock jump.
const MAX_READ_GAP: Duration = Duration::from_millis(10);

/// Maximum number of attempts to read both clocks within [`MAX_READ_GAP`].
const MAX_READS: usize = 5;

/// Simultaneous readings of both clocks, to detect clock jumps. After a
/// hypervisor paused the machine, the wall clock may be corrected while the
/// boot-time clock has not counted the pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    moment: Moment,
    /// Wall clock in nanoseconds since 1970. Every event compares pairs, and
    /// integers are compared faster than [`SystemTime`]s. Before 1970 it is 0, so
    /// that clock jumps are detected from 1970 on.
    wall: u64,
}

impl ClockPair {
    /// Creates a pair from two readings of the same moment.
    #[must_use]
    pub fn new(moment: Moment, wall: SystemTime) -> Self {
        let wall = wall.duration_since(UNIX_EPOCH).map_or(0, to_nanos);
        Self { moment, wall }
    }

    /// Reads both clocks.
    #[must_use]
    pub fn now() -> Self {
        let mut before = Moment::now();
        for _ in 0..MAX_READS {
            let wall = wall();
            let after = Moment::now();
            if after < before + MAX_READ_GAP {
                return Self::new(before, wall);
            }
            before = after;
        }
        Self::new(before, wall())
    }

    /// Returns the reading of the boot-time clock.
    #[must_use]
    pub const fn at(&self) -> Moment {
        self.moment
    }

    /// Returns the reading of the wall clock.
    #[must_use]
    pub fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.wall)
    }

    /// Returns how far the wall clock advanced relative to the boot-time clock
    /// between this pair and `later`; zero if it fell behind.
    #[must_use]
    pub fn jump_until(&self, later: &Self) -> Duration {
        let by_wall = later.wall.saturating_sub(self.wall);
        Duration::from_nanos(by_wall.saturating_sub(later.moment.0.saturating_sub(self.moment.0)))
    }

    /// Returns how far the wall clock fell behind the boot-time clock between this
    /// pair and `later`; zero if it advanced.
    #[must_use]
    pub fn lag_until(&self, later: &Self) -> Duration {
        let passed = later.moment.0.saturating_sub(self.moment.0);
        let expected = self.wall.saturating_add(passed);
        Duration::from_nanos(expected.saturating_sub(later.wall))
    }

    /// Subtracts `jump` from the reading of the wall clock, so that a later
    /// comparison includes a jump of this length.
    #[must_use]
    pub fn with_wall_behind(self, jump: Duration) -> Self {
        Self { wall: self.wall.saturating_sub(to_nanos(jump)), ..self }
    }

    /// Creates a pair of clocks that are in sync, for tests.
    #[must_use]
    pub fn in_sync_at(moment: Moment) -> Self {
        let since_boot = moment.since(Moment::from_boot(Duration::ZERO));
        Self::new(moment, SystemTime::UNIX_EPOCH + since_boot)
    }

    /// Advances the reading of the wall clock, for tests.
    #[must_use]
    pub fn with_wall_ahead(self, by: Duration) -> Self {
        Self { wall: self.wall.saturating_add(to_nanos(by)), ..self }
    }
}

/// Returns whole nanoseconds; the maximum after 584 years.
fn to_nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_ordered_and_saturate() {
        let early = Moment::from_boot(Duration::from_secs(5));
        let late = early + Duration::from_secs(3);
        assert!(late > early);
        assert_eq!(late.since(early), Duration::from_secs(3));
        assert_eq!(early.since(late), Duration::ZERO);
        assert!(late + Duration::MAX > late);
        assert_eq!(early - Duration::from_secs(9), Moment::from_boot(Duration::ZERO));
    }

    #[test]
    fn now_has_passed_and_future_has_not() {
        let before = Moment::now();
        assert!(before.has_passed());
        assert!(!(before + Duration::from_secs(3600)).has_passed());
    }

    #[test]
    fn wall_clock_jump_and_lag_are_detected() {
        let before = ClockPair::in_sync_at(Moment::from_boot(Duration::from_secs(100)));
        let after = ClockPair::in_sync_at(Moment::from_boot(Duration::from_secs(103)));
        assert_eq!(before.jump_until(&after), Duration::ZERO);
        let after = after.with_wall_ahead(Duration::from_secs(60));
        assert_eq!(before.jump_until(&after), Duration::from_secs(60));
        assert_eq!(after.jump_until(&before), Duration::ZERO, "set back");
        // Small jumps can be carried over.
        let later = ClockPair::in_sync_at(Moment::from_boot(Duration::from_secs(113)));
        let carried = before.with_wall_behind(Duration::from_millis(900));
        let jumped = later.with_wall_ahead(Duration::from_millis(900));
        assert_eq!(carried.jump_until(&jumped), Duration::from_millis(1800));
        // A wall clock that falls behind is detected, too.
        let ahead = before.with_wall_ahead(Duration::from_secs(20));
        assert_eq!(ahead.lag_until(&later), Duration::from_secs(20));
        assert_eq!(before.lag_until(&later), Duration::ZERO);
    }
}

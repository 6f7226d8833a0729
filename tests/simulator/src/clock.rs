//! The clocks of one machine: how they run against true time.

use crate::world::Nanos;

/// A clock that runs evenly between changes.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// What it showed at the last change, and when that was.
    base: Nanos,
    since: Nanos,
    /// How many nanoseconds it gains in a second.
    drift: i64,
    running: bool,
}

impl Counter {
    const fn new(base: Nanos, drift: i64) -> Self {
        Self { base, since: 0, drift, running: true }
    }

    fn at(&self, now: Nanos) -> Nanos {
        if !self.running {
            return self.base;
        }
        let passed = i128::from(now - self.since);
        let shown = passed + passed * i128::from(self.drift) / 1_000_000_000;
        self.base + shown.max(0) as Nanos
    }

    /// The first true time at which it shows at least this, or the nanosecond after;
    /// never, if it stands.
    fn when(&self, shows: Nanos) -> Nanos {
        if shows <= self.base {
            return self.since;
        }
        if !self.running {
            return Nanos::MAX;
        }
        let lacking = i128::from(shows - self.base);
        let passed = lacking * 1_000_000_000 / (1_000_000_000 + i128::from(self.drift));
        let mut when = self.since + passed as Nanos;
        while self.at(when) < shows {
            when += 1;
        }
        when
    }

    fn rebase(&mut self, now: Nanos) {
        self.base = self.at(now);
        self.since = now;
    }

    fn run(&mut self, running: bool, now: Nanos) {
        self.rebase(now);
        self.running = running;
    }
}

/// How a machine stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It sleeps: the clock that counts through suspend goes on, and the wall clock
    /// is set right when it wakes up.
    Suspended,
    /// It sleeps, its wall clock sleeps, too, and nobody sets that right.
    Unaware,
    /// It is frozen from outside: none of its own clocks goes on, and the wall
    /// clock is set right afterwards.
    Frozen,
}

/// The clocks of a machine.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// Timers go by this one: it stands still during suspend.
    timers: Counter,
    /// Counts through suspend.
    boot: Counter,
    wall: Counter,
    /// What the wall clock shows at the beginning: right, as far as this machine
    /// knows what is right.
    right: Nanos,
    /// In how many ways it stands still: by the ways of [`Stop`].
    stops: [u32; 3],
    /// When it was frozen, and what the wall clock showed then.
    frozen: (Nanos, Nanos),
}

impl Clocks {
    /// `up` is how long the machine has been up at the beginning.
    #[must_use]
    pub const fn new(up: Nanos, wall: Nanos, drift: i64) -> Self {
        Self {
            timers: Counter::new(up, drift),
            boot: Counter::new(up, drift),
            wall: Counter::new(wall, drift),
            right: wall,
            stops: [0; 3],
            frozen: (0, 0),
        }
    }

    /// What timers go by.
    #[must_use]
    pub fn timers(&self, now: Nanos) -> Nanos {
        self.timers.at(now)
    }

    /// When timers reach this; never, if they stand.
    #[must_use]
    pub fn timers_reach(&self, shows: Nanos) -> Nanos {
        self.timers.when(shows)
    }

    /// The clock that counts through suspend.
    #[must_use]
    pub fn boot(&self, now: Nanos) -> Nanos {
        self.boot.at(now)
    }

    /// When it reaches this; never, if it stands.
    #[must_use]
    pub fn boot_reaches(&self, shows: Nanos) -> Nanos {
        self.boot.when(shows)
    }

    /// Nanoseconds since 1970, as the machine believes.
    #[must_use]
    pub fn wall(&self, now: Nanos) -> Nanos {
        self.wall.at(now)
    }

    /// All run faster or slower from now on, by so many nanoseconds a second.
    pub fn set_drift(&mut self, drift: i64, now: Nanos) {
        for clock in [&mut self.timers, &mut self.boot, &mut self.wall] {
            clock.rebase(now);
            clock.drift = drift;
        }
    }

    /// Somebody sets the wall clock.
    pub fn set_wall(&mut self, by: i64, now: Nanos) {
        self.wall.rebase(now);
        self.wall.base = self.wall.base.saturating_add_signed(by);
    }

    /// The machine stands still.
    pub fn stop(&mut self, how: Stop, now: Nanos) {
        if how == Stop::Frozen && self.stops[Stop::Frozen as usize] == 0 {
            self.frozen = (now, self.wall(now));
        }
        self.stops[how as usize] += 1;
        self.run(now);
    }

    /// It goes on, unless something else stops it still. Whoever froze it sets its
    /// wall clock right, or as right as it ever was: if that were wrong too, nothing
    /// would be left to notice by.
    pub fn go_on(&mut self, how: Stop, now: Nanos) {
        self.stops[how as usize] -= 1;
        self.run(now);
        if how == Stop::Frozen && self.stops[Stop::Frozen as usize] == 0 {
            let (since, wall) = self.frozen;
            self.wall.base = self.wall.base.max(self.right + now).max(wall + (now - since));
        }
    }

    fn run(&mut self, now: Nanos) {
        let [_, unaware, frozen] = self.stops;
        self.timers.run(self.stops == [0; 3], now);
        self.boot.run(frozen == 0, now);
        self.wall.run(unaware == 0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    #[test]
    fn a_clock_drifts_and_is_found_again() {
        let mut clocks = Clocks::new(100 * S, 0, 1_000_000);
        assert_eq!(clocks.boot(1000 * S), 1101 * S);
        assert_eq!(clocks.boot_reaches(1101 * S), 1000 * S);
        clocks.set_drift(-1_000_000, 1000 * S);
        assert_eq!(clocks.boot(2000 * S), 1101 * S + 999 * S);
        for shows in [1101 * S + 1000, 1500 * S + 17, 2100 * S] {
            let when = clocks.boot_reaches(shows);
            assert!(clocks.boot(when) >= shows && clocks.boot(when - 2) < shows);
        }
    }

    #[test]
    fn what_stands_still_in_sleep_and_in_ice() {
        let mut clocks = Clocks::new(0, 0, 0);
        clocks.stop(Stop::Suspended, 10 * S);
        assert_eq!((clocks.timers(50 * S), clocks.boot(50 * S)), (10 * S, 50 * S));
        assert_eq!(clocks.timers_reach(11 * S), Nanos::MAX);
        clocks.go_on(Stop::Suspended, 50 * S);
        assert_eq!(clocks.timers_reach(11 * S), 51 * S);
        clocks.stop(Stop::Frozen, 60 * S);
        clocks.go_on(Stop::Frozen, 90 * S);
        assert_eq!((clocks.boot(91 * S), clocks.wall(91 * S)), (61 * S, 91 * S));
    }

    #[test]
    fn a_wall_clock_that_slept_too_stays_behind() {
        let mut clocks = Clocks::new(0, 0, 0);
        clocks.stop(Stop::Unaware, 10 * S);
        clocks.go_on(Stop::Unaware, 50 * S);
        assert_eq!((clocks.boot(60 * S), clocks.wall(60 * S)), (60 * S, 20 * S));
        assert_eq!(clocks.timers(60 * S), 20 * S);
    }

    #[test]
    fn what_stops_in_two_ways_goes_on_after_both() {
        let mut clocks = Clocks::new(0, 0, 0);
        clocks.set_wall(20 * S as i64, 0);
        clocks.stop(Stop::Frozen, 10 * S);
        clocks.stop(Stop::Unaware, 15 * S);
        clocks.go_on(Stop::Frozen, 30 * S);
        assert_eq!((clocks.timers(35 * S), clocks.boot(35 * S)), (10 * S, 15 * S));
        assert_eq!(clocks.wall(35 * S), 50 * S, "the freeze is to be noticed");
        clocks.go_on(Stop::Unaware, 40 * S);
        assert_eq!((clocks.timers(41 * S), clocks.boot(41 * S)), (11 * S, 21 * S));
    }
}

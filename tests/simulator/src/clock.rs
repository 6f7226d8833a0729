//! Clocks of one machine, as functions of true time.

use crate::world::Nanos;

/// Clock with a constant rate between changes.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Reading at the last change, and true time of that change.
    base: Nanos,
    since: Nanos,
    /// Nanoseconds gained per second.
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
        let elapsed = passed + passed * i128::from(self.drift) / 1_000_000_000;
        self.base + elapsed.max(0) as Nanos
    }

    /// Returns the first true time, to the nanosecond, at which the clock reads
    /// at least `reading`. Returns `Nanos::MAX` if the clock is stopped.
    fn when(&self, reading: Nanos) -> Nanos {
        if reading <= self.base {
            return self.since;
        }
        if !self.running {
            return Nanos::MAX;
        }
        let missing = i128::from(reading - self.base);
        let passed = missing * 1_000_000_000 / (1_000_000_000 + i128::from(self.drift));
        let mut when = self.since + passed as Nanos;
        while self.at(when) < reading {
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

/// Kind of a machine stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The machine is suspended. The boot clock continues, and the wall clock
    /// is corrected on resume.
    Suspended,
    /// The machine is suspended, its wall clock stops as well, and is not
    /// corrected.
    Unaware,
    /// The machine is a VM that its hypervisor pauses. All its clocks stop, and
    /// the wall clock is corrected afterwards.
    VmPaused,
}

/// Clocks of a machine.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// Clock of the timers; stops during suspend.
    timers: Counter,
    /// Boot clock; continues during suspend.
    boot: Counter,
    wall: Counter,
    /// Initial reading of the wall clock, as correct as this machine ever
    /// knows.
    start_wall: Nanos,
    /// Number of active stops of each kind of [`Stop`].
    stops: [u32; 3],
    /// True time of the VM pause, and reading of the wall clock at that time.
    vm_paused: (Nanos, Nanos),
}

impl Clocks {
    /// Creates the clocks of a machine that has been up for `up`.
    #[must_use]
    pub const fn new(up: Nanos, wall: Nanos, drift: i64) -> Self {
        Self {
            timers: Counter::new(up, drift),
            boot: Counter::new(up, drift),
            wall: Counter::new(wall, drift),
            start_wall: wall,
            stops: [0; 3],
            vm_paused: (0, 0),
        }
    }

    /// Returns the reading of the timer clock.
    #[must_use]
    pub fn timers(&self, now: Nanos) -> Nanos {
        self.timers.at(now)
    }

    /// Returns when the timer clock reaches this reading; `Nanos::MAX` if it is
    /// stopped.
    #[must_use]
    pub fn timers_reach(&self, reading: Nanos) -> Nanos {
        self.timers.when(reading)
    }

    /// Returns the reading of the boot clock.
    #[must_use]
    pub fn boot(&self, now: Nanos) -> Nanos {
        self.boot.at(now)
    }

    /// Returns when the boot clock reaches this reading; `Nanos::MAX` if it is
    /// stopped.
    #[must_use]
    pub fn boot_reaches(&self, reading: Nanos) -> Nanos {
        self.boot.when(reading)
    }

    /// Returns the reading of the wall clock, in nanoseconds since 1970.
    #[must_use]
    pub fn wall(&self, now: Nanos) -> Nanos {
        self.wall.at(now)
    }

    /// Changes the rate of all clocks, in nanoseconds per second.
    pub fn set_drift(&mut self, drift: i64, now: Nanos) {
        for clock in [&mut self.timers, &mut self.boot, &mut self.wall] {
            clock.rebase(now);
            clock.drift = drift;
        }
    }

    /// Steps the wall clock.
    pub fn set_wall(&mut self, by: i64, now: Nanos) {
        self.wall.rebase(now);
        self.wall.base = self.wall.base.saturating_add_signed(by);
    }

    /// Stops the machine.
    pub fn stop(&mut self, how: Stop, now: Nanos) {
        if how == Stop::VmPaused && self.stops[Stop::VmPaused as usize] == 0 {
            self.vm_paused = (now, self.wall(now));
        }
        self.stops[how as usize] += 1;
        self.run(now);
    }

    /// Ends one stop; the machine continues when no other stop is active. The
    /// wall clock of a paused VM is corrected, at least to its initial error:
    /// otherwise the pause could not be detected.
    pub fn resume(&mut self, how: Stop, now: Nanos) {
        self.stops[how as usize] -= 1;
        self.run(now);
        if how == Stop::VmPaused && self.stops[Stop::VmPaused as usize] == 0 {
            let (since, wall) = self.vm_paused;
            self.wall.base = self.wall.base.max(self.start_wall + now).max(wall + (now - since));
        }
    }

    fn run(&mut self, now: Nanos) {
        let [_, unaware, vm_paused] = self.stops;
        self.timers.run(self.stops == [0; 3], now);
        self.boot.run(vm_paused == 0, now);
        self.wall.run(unaware == 0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    #[test]
    fn clock_drifts_and_inverse_matches() {
        let mut clocks = Clocks::new(100 * S, 0, 1_000_000);
        assert_eq!(clocks.boot(1000 * S), 1101 * S);
        assert_eq!(clocks.boot_reaches(1101 * S), 1000 * S);
        clocks.set_drift(-1_000_000, 1000 * S);
        assert_eq!(clocks.boot(2000 * S), 1101 * S + 999 * S);
        for reading in [1101 * S + 1000, 1500 * S + 17, 2100 * S] {
            let when = clocks.boot_reaches(reading);
            assert!(clocks.boot(when) >= reading && clocks.boot(when - 2) < reading);
        }
    }

    #[test]
    fn suspend_and_vm_pause_stop_different_clocks() {
        let mut clocks = Clocks::new(0, 0, 0);
        clocks.stop(Stop::Suspended, 10 * S);
        assert_eq!((clocks.timers(50 * S), clocks.boot(50 * S)), (10 * S, 50 * S));
        assert_eq!(clocks.timers_reach(11 * S), Nanos::MAX);
        clocks.resume(Stop::Suspended, 50 * S);
        assert_eq!(clocks.timers_reach(11 * S), 51 * S);
        clocks.stop(Stop::VmPaused, 60 * S);
        clocks.resume(Stop::VmPaused, 90 * S);
        assert_eq!((clocks.boot(91 * S), clocks.wall(91 * S)), (61 * S, 91 * S));
    }

    #[test]
    fn suspended_wall_clock_stays_behind() {
        let mut clocks = Clocks::new(0, 0, 0);
        clocks.stop(Stop::Unaware, 10 * S);
        clocks.resume(Stop::Unaware, 50 * S);
        assert_eq!((clocks.boot(60 * S), clocks.wall(60 * S)), (60 * S, 20 * S));
        assert_eq!(clocks.timers(60 * S), 20 * S);
    }

    #[test]
    fn overlapping_stops_end_with_the_last() {
        let mut clocks = Clocks::new(0, 0, 0);
        clocks.set_wall(20 * S as i64, 0);
        clocks.stop(Stop::VmPaused, 10 * S);
        clocks.stop(Stop::Unaware, 15 * S);
        clocks.resume(Stop::VmPaused, 30 * S);
        assert_eq!((clocks.timers(35 * S), clocks.boot(35 * S)), (10 * S, 15 * S));
        assert_eq!(clocks.wall(35 * S), 50 * S, "the pause is detectable");
        clocks.resume(Stop::Unaware, 40 * S);
        assert_eq!((clocks.timers(41 * S), clocks.boot(41 * S)), (11 * S, 21 * S));
    }
}

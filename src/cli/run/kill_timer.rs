//! When to stop the command. Pure: told the deadline and the time, it says
//! what to do.

use std::time::Duration;

use leasehold_time::Moment;

/// However long a grant is valid, this is time enough to kill a process.
const LONGEST_MARGIN: Duration = Duration::from_millis(250);

/// A lease lasts 15 s at least; it is renewed within 5 s, and we hear of that
/// within another 5 s. So up to 4 s before the deadline that we know all may be
/// well, however long the session's ttl is.
const LONGEST_EARLY: Duration = Duration::from_millis(2500);

/// What is to be done to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Ask it to end.
    Terminate,
    /// End it.
    Kill,
}

/// Watches over the deadline of a running command's grant.
#[derive(Debug)]
pub(super) struct KillTimer {
    validity: Duration,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// The command has been told to end while the grant is kept, and is killed
    /// if it takes longer than this.
    Draining {
        kill_at: Moment,
    },
    /// There is no way back from here, also if the grant can be kept after all:
    /// the command has been told to end.
    Terminating {
        kill_at: Moment,
    },
    Killed,
}

impl KillTimer {
    /// Over a grant that is valid for this long after each sign of life.
    pub(super) const fn over(validity: Duration) -> Self {
        Self { validity, stage: Stage::Running }
    }

    /// From now on the command is being asked to end, until `kill_at` at most.
    /// Says whether it has not been asked before.
    pub(super) fn drain(&mut self, kill_at: Moment) -> bool {
        match &mut self.stage {
            stage @ Stage::Running => {
                *stage = Stage::Draining { kill_at };
                true
            }
            Stage::Draining { kill_at: before } => {
                *before = kill_at.min(*before);
                false
            }
            Stage::Terminating { .. } | Stage::Killed => false,
        }
    }

    /// What is to be done now.
    pub(super) fn on(&mut self, deadline: Moment, lost: bool, now: Moment) -> Option<Order> {
        let kill_at = match self.stage {
            Stage::Running => deadline - self.margin(),
            Stage::Draining { kill_at } | Stage::Terminating { kill_at } => {
                kill_at.min(deadline - self.margin())
            }
            Stage::Killed => return None,
        };
        if now >= kill_at {
            self.stage = Stage::Killed;
            return Some(Order::Kill);
        }
        if self.stage == Stage::Running && (lost || now >= self.terminate_at(deadline)) {
            self.stage = Stage::Terminating { kill_at };
            return Some(Order::Terminate);
        }
        None
    }

    /// When to ask [`on`](Self::on) again, if nothing happens before. `None`
    /// once all has been done.
    pub(super) fn next(&self, deadline: Moment, now: Moment) -> Option<Moment> {
        match self.stage {
            // The deadline moves while we wait.
            Stage::Running => Some(self.terminate_at(deadline).min(now + self.refresh())),
            Stage::Draining { kill_at } => {
                Some(kill_at.min(deadline - self.margin()).min(now + self.refresh()))
            }
            Stage::Terminating { kill_at } => Some(kill_at),
            Stage::Killed => None,
        }
    }

    /// Whether the grant is still being kept for the command, so that its
    /// deadline counts.
    pub(super) const fn keeps(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Draining { .. })
    }

    /// When the watchdog has to kill, if we have not: later than we would, and
    /// before the deadline.
    pub(super) fn watchdog_kills_at(&self, deadline: Moment) -> Moment {
        deadline - self.margin() / 2
    }

    /// How long before the deadline the command is asked to end. Keep-alives
    /// are sent every third of the validity: when a quarter is left, two have
    /// got no answer.
    pub(super) fn early(&self) -> Duration {
        (self.validity / 4).min(LONGEST_EARLY)
    }

    fn terminate_at(&self, deadline: Moment) -> Moment {
        deadline - self.early()
    }

    /// How long before the deadline the command is killed.
    pub(super) fn margin(&self) -> Duration {
        (self.validity / 20).min(LONGEST_MARGIN)
    }

    fn refresh(&self) -> Duration {
        (self.validity / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(millis))
    }

    fn kill_timer() -> KillTimer {
        KillTimer::over(Duration::from_secs(10))
    }

    #[test]
    fn a_lock_that_is_kept_leaves_the_command_alone() {
        let mut kill_timer = kill_timer();
        for now in (0..60_000).step_by(500) {
            assert_eq!(kill_timer.on(at(now + 7_000), false, at(now)), None);
        }
        assert!(kill_timer.keeps());
    }

    #[test]
    fn without_keep_alives_it_terminates_early_and_kills_before_the_deadline() {
        let mut kill_timer = kill_timer();
        let deadline = at(10_000);
        assert_eq!(kill_timer.on(deadline, false, at(7_499)), None);
        assert_eq!(kill_timer.on(deadline, false, at(7_500)), Some(Order::Terminate));
        assert_eq!(kill_timer.on(deadline, false, at(9_749)), None);
        assert_eq!(kill_timer.next(deadline, at(9_749)), Some(at(9_750)));
        assert_eq!(kill_timer.on(deadline, false, at(9_750)), Some(Order::Kill));
        assert_eq!(kill_timer.on(deadline, false, at(9_751)), None);
        assert_eq!(kill_timer.next(deadline, at(9_751)), None);
    }

    #[test]
    fn a_loss_terminates_at_once() {
        let mut kill_timer = kill_timer();
        assert_eq!(kill_timer.on(at(10_000), true, at(1_000)), Some(Order::Terminate));
        assert_eq!(kill_timer.on(at(10_000), true, at(1_001)), None);
        assert_eq!(kill_timer.on(at(10_000), true, at(9_750)), Some(Order::Kill));
    }

    #[test]
    fn after_a_long_sleep_it_kills_at_once() {
        assert_eq!(kill_timer().on(at(10_000), false, at(10_001)), Some(Order::Kill));
    }

    #[test]
    fn a_keep_alive_that_comes_too_late_changes_nothing() {
        let mut kill_timer = kill_timer();
        kill_timer.on(at(10_000), false, at(7_500));
        assert_eq!(kill_timer.on(at(20_000), false, at(9_750)), Some(Order::Kill));
    }

    #[test]
    fn a_short_grant_has_a_short_margin() {
        let mut kill_timer = KillTimer::over(Duration::from_secs(1));
        assert_eq!(kill_timer.on(at(1_000), false, at(750)), Some(Order::Terminate));
        assert_eq!(kill_timer.on(at(1_000), false, at(950)), Some(Order::Kill));
        assert_eq!(kill_timer.watchdog_kills_at(at(1_000)), at(975));
    }

    #[test]
    fn a_lease_that_is_renewed_as_it_should_ends_no_command() {
        let mut kill_timer = KillTimer::over(Duration::from_secs(60));
        // Renewed at 5 s, and heard of at 10 s.
        assert_eq!(kill_timer.on(at(13_970), false, at(10_000)), None);
        assert_eq!(kill_timer.on(at(18_970), false, at(15_000)), None);
        assert_eq!(kill_timer.on(at(18_970), false, at(16_470)), Some(Order::Terminate));
    }

    #[test]
    fn it_looks_again_while_the_deadline_moves() {
        let kill_timer = kill_timer();
        assert_eq!(kill_timer.next(at(10_000), at(0)), Some(at(1_000)));
        assert_eq!(kill_timer.next(at(10_000), at(7_000)), Some(at(7_500)));
    }

    #[test]
    fn a_command_that_drains_may_do_so_while_the_grant_is_kept() {
        let mut kill_timer = kill_timer();
        assert!(kill_timer.drain(at(60_000)));
        assert!(!kill_timer.drain(at(50_000)), "it has been asked already");
        for now in (0..50_000).step_by(500) {
            assert_eq!(kill_timer.on(at(now + 7_000), false, at(now)), None);
        }
        assert!(kill_timer.keeps());
        assert_eq!(kill_timer.on(at(57_000), false, at(50_000)), Some(Order::Kill));
        assert_eq!(kill_timer.on(at(57_000), false, at(50_001)), None);
        assert!(!kill_timer.drain(at(70_000)) && !kill_timer.keeps());
    }

    #[test]
    fn a_command_that_drains_is_killed_before_the_deadline() {
        for lost in [false, true] {
            let mut kill_timer = kill_timer();
            kill_timer.drain(at(60_000));
            assert_eq!(kill_timer.on(at(10_000), lost, at(9_749)), None);
            assert_eq!(kill_timer.next(at(10_000), at(9_749)), Some(at(9_750)));
            assert_eq!(kill_timer.on(at(10_000), lost, at(9_750)), Some(Order::Kill));
        }
    }
}

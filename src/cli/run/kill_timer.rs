//! Decides when to stop the command. Sans-IO: takes the deadline and the time, and
//! returns an [`Order`].

use std::time::Duration;

use leasehold_time::Moment;

/// Maximum time reserved for killing a process before the deadline.
const MAX_KILL_MARGIN: Duration = Duration::from_millis(250);

/// Maximum time between SIGTERM and the deadline. The remaining validity
/// of a healthy grant can fall to 4 s, for any session TTL: a lease lasts at least
/// 15 s, is renewed within 5 s, and the renewal is reported within another 5 s.
const MAX_TERMINATE_LEAD: Duration = Duration::from_millis(2500);

/// Action on the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Send SIGTERM.
    Terminate,
    /// Send SIGKILL.
    Kill,
}

/// Stops a running command before the deadline of its grant.
#[derive(Debug)]
pub(super) struct KillTimer {
    validity: Duration,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// SIGTERM was sent for another reason while the grant is kept alive; SIGKILL
    /// follows at `kill_at`.
    Draining {
        kill_at: Moment,
    },
    /// SIGTERM was sent because of the grant. A later keep-alive does not change
    /// `kill_at`.
    Terminating {
        kill_at: Moment,
    },
    Killed,
}

impl KillTimer {
    /// Creates the timer of a grant that each keep-alive extends to `validity`.
    pub(super) const fn new(validity: Duration) -> Self {
        Self { validity, stage: Stage::Running }
    }

    /// Starts draining: the command must end by `kill_at`. Returns whether SIGTERM is
    /// to be sent, because it was not sent before.
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

    /// Returns the action that is due now.
    pub(super) fn on(&mut self, deadline: Moment, is_lost: bool, now: Moment) -> Option<Order> {
        let kill_at = match self.stage {
            Stage::Running => deadline - self.kill_margin(),
            Stage::Draining { kill_at } | Stage::Terminating { kill_at } => {
                kill_at.min(deadline - self.kill_margin())
            }
            Stage::Killed => return None,
        };
        if now >= kill_at {
            self.stage = Stage::Killed;
            return Some(Order::Kill);
        }
        if self.stage == Stage::Running && (is_lost || now >= self.terminate_at(deadline)) {
            self.stage = Stage::Terminating { kill_at };
            return Some(Order::Terminate);
        }
        None
    }

    /// Time of the next call of [`on`](Self::on) without an event. `None` after
    /// SIGKILL.
    pub(super) fn next(&self, deadline: Moment, now: Moment) -> Option<Moment> {
        match self.stage {
            // The deadline moves during the wait.
            Stage::Running => Some(self.terminate_at(deadline).min(now + self.refresh_interval())),
            Stage::Draining { kill_at } => {
                Some(kill_at.min(deadline - self.kill_margin()).min(now + self.refresh_interval()))
            }
            Stage::Terminating { kill_at } => Some(kill_at),
            Stage::Killed => None,
        }
    }

    /// Returns whether the command may still use the grant, so that its deadline
    /// matters.
    pub(super) const fn follows_deadline(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Draining { .. })
    }

    /// Time of the watchdog's kill: after the kill of this process, and before the
    /// deadline.
    pub(super) fn watchdog_kill_at(&self, deadline: Moment) -> Moment {
        deadline - self.kill_margin() / 2
    }

    /// Time between SIGTERM and the deadline. Keep-alives are sent every third of the
    /// validity: when a quarter is left, two have had no response.
    pub(super) fn terminate_lead(&self) -> Duration {
        (self.validity / 4).min(MAX_TERMINATE_LEAD)
    }

    fn terminate_at(&self, deadline: Moment) -> Moment {
        deadline - self.terminate_lead()
    }

    /// Time between SIGKILL and the deadline.
    pub(super) fn kill_margin(&self) -> Duration {
        (self.validity / 20).min(MAX_KILL_MARGIN)
    }

    fn refresh_interval(&self) -> Duration {
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
        KillTimer::new(Duration::from_secs(10))
    }

    #[test]
    fn command_runs_while_keep_alives_arrive() {
        let mut kill_timer = kill_timer();
        for now in (0..60_000).step_by(500) {
            assert_eq!(kill_timer.on(at(now + 7_000), false, at(now)), None);
        }
        assert!(kill_timer.follows_deadline());
    }

    #[test]
    fn missing_keep_alives_terminate_then_kill_before_deadline() {
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
    fn loss_terminates_immediately() {
        let mut kill_timer = kill_timer();
        assert_eq!(kill_timer.on(at(10_000), true, at(1_000)), Some(Order::Terminate));
        assert_eq!(kill_timer.on(at(10_000), true, at(1_001)), None);
        assert_eq!(kill_timer.on(at(10_000), true, at(9_750)), Some(Order::Kill));
    }

    #[test]
    fn pause_past_deadline_kills_immediately() {
        assert_eq!(kill_timer().on(at(10_000), false, at(10_001)), Some(Order::Kill));
    }

    #[test]
    fn late_keep_alive_does_not_stop_kill() {
        let mut kill_timer = kill_timer();
        kill_timer.on(at(10_000), false, at(7_500));
        assert_eq!(kill_timer.on(at(20_000), false, at(9_750)), Some(Order::Kill));
    }

    #[test]
    fn short_grant_has_short_margin() {
        let mut kill_timer = KillTimer::new(Duration::from_secs(1));
        assert_eq!(kill_timer.on(at(1_000), false, at(750)), Some(Order::Terminate));
        assert_eq!(kill_timer.on(at(1_000), false, at(950)), Some(Order::Kill));
        assert_eq!(kill_timer.watchdog_kill_at(at(1_000)), at(975));
    }

    #[test]
    fn regular_renewals_do_not_stop_command() {
        let mut kill_timer = KillTimer::new(Duration::from_secs(60));
        // Renewed at 5 s, reported at 10 s.
        assert_eq!(kill_timer.on(at(13_970), false, at(10_000)), None);
        assert_eq!(kill_timer.on(at(18_970), false, at(15_000)), None);
        assert_eq!(kill_timer.on(at(18_970), false, at(16_470)), Some(Order::Terminate));
    }

    #[test]
    fn deadline_is_checked_while_it_moves() {
        let kill_timer = kill_timer();
        assert_eq!(kill_timer.next(at(10_000), at(0)), Some(at(1_000)));
        assert_eq!(kill_timer.next(at(10_000), at(7_000)), Some(at(7_500)));
    }

    #[test]
    fn draining_lasts_while_grant_is_kept_alive() {
        let mut kill_timer = kill_timer();
        assert!(kill_timer.drain(at(60_000)));
        assert!(!kill_timer.drain(at(50_000)), "SIGTERM was sent before");
        for now in (0..50_000).step_by(500) {
            assert_eq!(kill_timer.on(at(now + 7_000), false, at(now)), None);
        }
        assert!(kill_timer.follows_deadline());
        assert_eq!(kill_timer.on(at(57_000), false, at(50_000)), Some(Order::Kill));
        assert_eq!(kill_timer.on(at(57_000), false, at(50_001)), None);
        assert!(!kill_timer.drain(at(70_000)) && !kill_timer.follows_deadline());
    }

    #[test]
    fn draining_ends_before_deadline() {
        for is_lost in [false, true] {
            let mut kill_timer = kill_timer();
            kill_timer.drain(at(60_000));
            assert_eq!(kill_timer.on(at(10_000), is_lost, at(9_749)), None);
            assert_eq!(kill_timer.next(at(10_000), at(9_749)), Some(at(9_750)));
            assert_eq!(kill_timer.on(at(10_000), is_lost, at(9_750)), Some(Order::Kill));
        }
    }
}

//! Decisions of the watchdog. Sans-IO: without clock, signals and pipe.

use std::time::Duration;

use super::Message;
use leasehold_time::{ClockPair, Moment};

/// Interval at which an orphaned group is checked for members.
const GROUP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of clock checks: no event announces a wall clock that jumped.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Input of the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Message of the `lock` process.
    Message(Message),
    /// The pipe was closed without a final message, because the `lock` process died.
    /// An invalid message has the same effect.
    Disconnected,
    /// Regular check of the clocks and the group.
    Check { is_group_gone: bool },
}

/// Action of the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Send SIGTERM to the group with this leader.
    Terminate(u32),
    /// Send SIGKILL to the group with this leader, and exit.
    Kill(u32),
    /// Exit.
    Finish,
}

/// State of the watchdog.
#[derive(Debug, Default)]
pub(super) struct Watch {
    group: Option<u32>,
    /// Time of the kill, with both clocks from before its computation.
    kill_at: Option<(Moment, ClockPair)>,
    is_orphaned: bool,
}

impl Watch {
    /// Handles an event.
    pub(super) fn on(&mut self, event: Event, now: &ClockPair) -> Option<Action> {
        let was_orphaned = self.is_orphaned;
        match event {
            Event::Message(Message::Group(leader)) => self.group = Some(leader),
            Event::Message(Message::KillAt { at, known }) => self.kill_at = Some((at, known)),
            Event::Message(Message::Finish) => return Some(Action::Finish),
            Event::Disconnected => self.is_orphaned = true,
            // The `lock` process reaps the leader only after its final message, so the
            // group exists until then. Afterwards, its ID may be reused.
            Event::Check { is_group_gone: true } if self.is_orphaned => {
                return Some(Action::Finish);
            }
            Event::Check { .. } => {}
        }
        let Some(group) = self.group else {
            // The command starts only after the message with its group.
            return self.is_orphaned.then_some(Action::Finish);
        };
        match self.kill_at(now) {
            Some(moment) if now.at() < moment => {
                (self.is_orphaned && !was_orphaned).then_some(Action::Terminate(group))
            }
            // Also without a time: then the command was never allowed to run.
            _ => Some(Action::Kill(group)),
        }
    }

    /// Time of the next check without an event.
    pub(super) fn next_check(&self, now: &ClockPair) -> Moment {
        let interval = if self.is_orphaned { GROUP_CHECK_INTERVAL } else { CLOCK_CHECK_INTERVAL };
        let check_at = now.at() + interval;
        self.kill_at(now).map_or(check_at, |moment| moment.min(check_at))
    }

    /// Time of the kill on the boot-time clock, brought forward by a clock jump.
    fn kill_at(&self, now: &ClockPair) -> Option<Moment> {
        self.kill_at.map(|(at, known)| at - known.jump_until(now))
    }

    /// Returns the leader of the watched group, if it is known.
    pub(super) const fn group(&self) -> Option<u32> {
        self.group
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const CHECK: Event = Event::Check { is_group_gone: false };

    fn moment(millis: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(millis))
    }

    /// Both clocks, with a wall clock that has jumped by `jump` ms.
    fn jumped(millis: u64, jump: u64) -> ClockPair {
        let wall = Duration::from_secs(1_000_000) + Duration::from_millis(millis + jump);
        ClockPair::new(moment(millis), UNIX_EPOCH + wall)
    }

    fn at(millis: u64) -> ClockPair {
        jumped(millis, 0)
    }

    fn kill_at(millis: u64, known: ClockPair) -> Event {
        Event::Message(Message::KillAt { at: moment(millis), known })
    }

    fn watching() -> Watch {
        let mut watch = Watch::default();
        assert_eq!(watch.on(kill_at(1_000, at(0)), &at(0)), None);
        assert_eq!(watch.on(Event::Message(Message::Group(712)), &at(0)), None);
        watch
    }

    #[test]
    fn watchdog_kills_at_last_received_time() {
        let mut watch = watching();
        assert_eq!(watch.next_check(&at(0)), moment(1_000));
        assert_eq!(watch.on(CHECK, &at(999)), None);
        assert_eq!(watch.on(kill_at(2_000, at(999)), &at(999)), None);
        assert_eq!(watch.on(CHECK, &at(1_000)), None);
        assert_eq!(watch.on(CHECK, &at(2_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn final_message_ends_watchdog_even_after_kill_time() {
        let finish = Event::Message(Message::Finish);
        assert_eq!(watching().on(finish, &at(5_000)), Some(Action::Finish));
    }

    #[test]
    fn orphaned_watchdog_terminates_once_then_kills() {
        let mut watch = watching();
        assert_eq!(watch.on(Event::Disconnected, &at(100)), Some(Action::Terminate(712)));
        assert_eq!(watch.next_check(&at(100)), moment(200));
        assert_eq!(watch.on(CHECK, &at(200)), None);
        assert_eq!(watch.next_check(&at(950)), moment(1_000));
        assert_eq!(watch.on(CHECK, &at(1_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn orphaned_watchdog_ends_with_group() {
        let mut watch = watching();
        watch.on(Event::Disconnected, &at(100));
        assert_eq!(watch.on(Event::Check { is_group_gone: true }, &at(200)), Some(Action::Finish));
    }

    #[test]
    fn watchdog_orphaned_past_deadline_kills_immediately() {
        assert_eq!(watching().on(Event::Disconnected, &at(1_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn orphaned_watchdog_without_group_ends() {
        assert_eq!(Watch::default().on(Event::Disconnected, &at(0)), Some(Action::Finish));
    }

    #[test]
    fn group_without_deadline_is_killed() {
        let group = Event::Message(Message::Group(712));
        assert_eq!(Watch::default().on(group, &at(0)), Some(Action::Kill(712)));
    }

    #[test]
    fn clock_jump_brings_kill_forward() {
        let mut watch = watching();
        assert_eq!(watch.on(CHECK, &jumped(100, 899)), None);
        assert_eq!(watch.next_check(&jumped(100, 500)), moment(500));
        assert_eq!(watch.on(CHECK, &jumped(100, 900)), Some(Action::Kill(712)));
    }

    #[test]
    fn clock_jump_counts_from_computation_of_deadline() {
        let mut watch = watching();
        // Paused while the message was in the pipe.
        let kill_at = |known| kill_at(2_000, known);
        assert_eq!(watch.on(kill_at(at(100)), &jumped(200, 1_800)), Some(Action::Kill(712)));
        // A deadline computed after the jump is right as it is.
        let mut watch = watching();
        assert_eq!(watch.on(kill_at(jumped(200, 1_800)), &jumped(200, 1_800)), None);
        assert_eq!(watch.next_check(&jumped(1_500, 1_800)), moment(2_000));
    }

    #[test]
    fn wall_clock_set_back_does_not_delay_kill() {
        let mut watch = watching();
        let set_back = ClockPair::new(moment(1_000), UNIX_EPOCH);
        assert_eq!(watch.on(CHECK, &set_back), Some(Action::Kill(712)));
    }

    #[test]
    fn clocks_are_checked_without_events() {
        let watch = Watch { kill_at: Some((moment(60_000), at(0))), ..Watch::default() };
        assert_eq!(watch.next_check(&at(0)), moment(1_000));
    }
}

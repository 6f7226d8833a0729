//! The watchdog's decisions. Pure: no clock, no signals, no pipe.

use std::time::Duration;

use super::Message;
use leasehold_time::{ClockPair, Moment};

/// How often to look whether a group without its `lock` process is gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of clock checks: no event announces a wall clock that jumped.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What happens to the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The `lock` process said something.
    Told(Message),
    /// The pipe ended: the `lock` process died without a farewell. Also what
    /// can't be understood counts as that.
    HungUp,
    /// Time has passed; whether the group still has members.
    Looked { gone: bool },
}

/// What the watchdog is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask the group with this leader to end.
    Terminate(u32),
    /// Kill the group with this leader, and end.
    Kill(u32),
    /// End.
    Finish,
}

/// What the watchdog knows.
#[derive(Debug, Default)]
pub(super) struct Watch {
    group: Option<u32>,
    /// Time of the kill, and both clocks when it was known to be right.
    kill_at: Option<(Moment, ClockPair)>,
    alone: bool,
}

impl Watch {
    /// Decides what `event` calls for.
    pub(super) fn on(&mut self, event: Event, now: &ClockPair) -> Option<Action> {
        let was_alone = self.alone;
        match event {
            Event::Told(Message::Group(leader)) => self.group = Some(leader),
            Event::Told(Message::KillAt { at, known }) => self.kill_at = Some((at, known)),
            Event::Told(Message::Farewell) => return Some(Action::Finish),
            Event::HungUp => self.alone = true,
            // Until its farewell, the `lock` process has not reaped the leader, so
            // the group is there. Without it, the id may soon be another's.
            Event::Looked { gone: true } if self.alone => return Some(Action::Finish),
            Event::Looked { .. } => {}
        }
        let Some(group) = self.group else {
            // Nothing runs before the group has been told.
            return self.alone.then_some(Action::Finish);
        };
        match self.kill_at(now) {
            Some(moment) if now.at() < moment => {
                (self.alone && !was_alone).then_some(Action::Terminate(group))
            }
            // Also without a deadline: then there never was a right to run.
            _ => Some(Action::Kill(group)),
        }
    }

    /// When to look next, if nothing happens before.
    pub(super) fn next_look(&self, now: &ClockPair) -> Moment {
        let at_latest = now.at() + if self.alone { LOOK_EVERY } else { CLOCK_CHECK_INTERVAL };
        self.kill_at(now).map_or(at_latest, |moment| moment.min(at_latest))
    }

    /// Time of the kill on the boot-time clock, by the clock that shows it first.
    fn kill_at(&self, now: &ClockPair) -> Option<Moment> {
        self.kill_at.map(|(at, known)| at - known.jump_until(now))
    }

    /// The group that is watched over, if it has been told.
    pub(super) const fn group(&self) -> Option<u32> {
        self.group
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const STILL_THERE: Event = Event::Looked { gone: false };

    fn moment(millis: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(millis))
    }

    /// Both clocks, with a wall clock that has jumped by this much.
    fn jumped(millis: u64, jump: u64) -> ClockPair {
        let wall = Duration::from_secs(1_000_000) + Duration::from_millis(millis + jump);
        ClockPair::new(moment(millis), UNIX_EPOCH + wall)
    }

    fn at(millis: u64) -> ClockPair {
        jumped(millis, 0)
    }

    fn kill_at(millis: u64, known: ClockPair) -> Event {
        Event::Told(Message::KillAt { at: moment(millis), known })
    }

    fn watching() -> Watch {
        let mut watch = Watch::default();
        assert_eq!(watch.on(kill_at(1_000, at(0)), &at(0)), None);
        assert_eq!(watch.on(Event::Told(Message::Group(712)), &at(0)), None);
        watch
    }

    #[test]
    fn it_kills_at_the_moment_that_it_was_told_last() {
        let mut watch = watching();
        assert_eq!(watch.next_look(&at(0)), moment(1_000));
        assert_eq!(watch.on(STILL_THERE, &at(999)), None);
        assert_eq!(watch.on(kill_at(2_000, at(999)), &at(999)), None);
        assert_eq!(watch.on(STILL_THERE, &at(1_000)), None);
        assert_eq!(watch.on(STILL_THERE, &at(2_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn a_farewell_ends_it_even_after_the_moment() {
        assert_eq!(watching().on(Event::Told(Message::Farewell), &at(5_000)), Some(Action::Finish));
    }

    #[test]
    fn left_alone_it_terminates_once_and_kills_later() {
        let mut watch = watching();
        assert_eq!(watch.on(Event::HungUp, &at(100)), Some(Action::Terminate(712)));
        assert_eq!(watch.next_look(&at(100)), moment(200));
        assert_eq!(watch.on(STILL_THERE, &at(200)), None);
        assert_eq!(watch.next_look(&at(950)), moment(1_000));
        assert_eq!(watch.on(STILL_THERE, &at(1_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn left_alone_it_ends_with_the_group() {
        let mut watch = watching();
        watch.on(Event::HungUp, &at(100));
        assert_eq!(watch.on(Event::Looked { gone: true }, &at(200)), Some(Action::Finish));
    }

    #[test]
    fn left_alone_too_late_it_kills_at_once() {
        assert_eq!(watching().on(Event::HungUp, &at(1_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn with_nothing_to_watch_it_ends() {
        assert_eq!(Watch::default().on(Event::HungUp, &at(0)), Some(Action::Finish));
    }

    #[test]
    fn a_group_without_a_deadline_has_no_right_to_run() {
        let told = Event::Told(Message::Group(712));
        assert_eq!(Watch::default().on(told, &at(0)), Some(Action::Kill(712)));
    }

    #[test]
    fn clock_jump_brings_kill_forward() {
        let mut watch = watching();
        assert_eq!(watch.on(STILL_THERE, &jumped(100, 899)), None);
        assert_eq!(watch.next_look(&jumped(100, 500)), moment(500));
        assert_eq!(watch.on(STILL_THERE, &jumped(100, 900)), Some(Action::Kill(712)));
    }

    #[test]
    fn clock_jump_counts_from_computation_of_deadline() {
        let mut watch = watching();
        // Paused while the message was in the pipe.
        let told = kill_at(2_000, at(100));
        assert_eq!(watch.on(told, &jumped(200, 1_800)), Some(Action::Kill(712)));
        // A deadline computed after the jump is right as it is.
        let mut watch = watching();
        assert_eq!(watch.on(kill_at(2_000, jumped(200, 1_800)), &jumped(200, 1_800)), None);
        assert_eq!(watch.next_look(&jumped(1_500, 1_800)), moment(2_000));
    }

    #[test]
    fn wall_clock_set_back_does_not_delay_kill() {
        let mut watch = watching();
        let set_back = ClockPair::new(moment(1_000), UNIX_EPOCH);
        assert_eq!(watch.on(STILL_THERE, &set_back), Some(Action::Kill(712)));
    }

    #[test]
    fn clocks_are_checked_without_events() {
        let watch = Watch { kill_at: Some((moment(60_000), at(0))), ..Watch::default() };
        assert_eq!(watch.next_look(&at(0)), moment(1_000));
    }
}

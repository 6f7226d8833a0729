//! The keeper's decisions. Pure: no clock, no signals, no pipe.

use std::time::Duration;

use super::Message;
use crate::clock::Moment;

/// How often to look whether a group without its `lock` process is gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long to wait if nothing is known yet. Any length would do.
const IDLE: Duration = Duration::from_secs(3600);

/// What happens to the keeper.
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

/// What the keeper is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask the group with this leader to end.
    Terminate(u32),
    /// Kill the group with this leader, and end.
    Kill(u32),
    /// End.
    Finish,
}

/// What the keeper knows.
#[derive(Debug, Default)]
pub(super) struct Watch {
    group: Option<u32>,
    kill_at: Option<Moment>,
    alone: bool,
}

impl Watch {
    /// Decides what `event` calls for.
    pub(super) fn on(&mut self, event: Event, now: Moment) -> Option<Action> {
        let was_alone = self.alone;
        match event {
            Event::Told(Message::Group(leader)) => self.group = Some(leader),
            Event::Told(Message::KillAt(moment)) => self.kill_at = Some(moment),
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
        match self.kill_at {
            Some(moment) if now < moment => {
                (self.alone && !was_alone).then_some(Action::Terminate(group))
            }
            // Also without a deadline: then there never was a right to run.
            _ => Some(Action::Kill(group)),
        }
    }

    /// When to look next, if nothing happens before.
    pub(super) fn next_look(&self, now: Moment) -> Moment {
        let at_latest = now + if self.alone { LOOK_EVERY } else { IDLE };
        self.kill_at.map_or(at_latest, |moment| moment.min(at_latest))
    }

    /// The group that is watched over, if it has been told.
    pub(super) const fn group(&self) -> Option<u32> {
        self.group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STILL_THERE: Event = Event::Looked { gone: false };

    fn at(millis: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(millis))
    }

    fn watching() -> Watch {
        let mut watch = Watch::default();
        assert_eq!(watch.on(Event::Told(Message::KillAt(at(1_000))), at(0)), None);
        assert_eq!(watch.on(Event::Told(Message::Group(712)), at(0)), None);
        watch
    }

    #[test]
    fn it_kills_at_the_moment_that_it_was_told_last() {
        let mut watch = watching();
        assert_eq!(watch.next_look(at(0)), at(1_000));
        assert_eq!(watch.on(STILL_THERE, at(999)), None);
        assert_eq!(watch.on(Event::Told(Message::KillAt(at(2_000))), at(999)), None);
        assert_eq!(watch.on(STILL_THERE, at(1_000)), None);
        assert_eq!(watch.on(STILL_THERE, at(2_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn a_farewell_ends_it_even_after_the_moment() {
        assert_eq!(watching().on(Event::Told(Message::Farewell), at(5_000)), Some(Action::Finish));
    }

    #[test]
    fn left_alone_it_terminates_once_and_kills_later() {
        let mut watch = watching();
        assert_eq!(watch.on(Event::HungUp, at(100)), Some(Action::Terminate(712)));
        assert_eq!(watch.next_look(at(100)), at(200));
        assert_eq!(watch.on(STILL_THERE, at(200)), None);
        assert_eq!(watch.next_look(at(950)), at(1_000));
        assert_eq!(watch.on(STILL_THERE, at(1_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn left_alone_it_ends_with_the_group() {
        let mut watch = watching();
        watch.on(Event::HungUp, at(100));
        assert_eq!(watch.on(Event::Looked { gone: true }, at(200)), Some(Action::Finish));
    }

    #[test]
    fn left_alone_too_late_it_kills_at_once() {
        assert_eq!(watching().on(Event::HungUp, at(1_000)), Some(Action::Kill(712)));
    }

    #[test]
    fn with_nothing_to_watch_it_ends() {
        assert_eq!(Watch::default().on(Event::HungUp, at(0)), Some(Action::Finish));
    }

    #[test]
    fn a_group_without_a_deadline_has_no_right_to_run() {
        let told = Event::Told(Message::Group(712));
        assert_eq!(Watch::default().on(told, at(0)), Some(Action::Kill(712)));
    }
}

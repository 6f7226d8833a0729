//! Messages from `lock` to its watchdog, one per line.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use leasehold_time::{ClockPair, Moment};

/// Message to the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Message {
    /// Process ID of the leader of the group to watch.
    Group(u32),
    /// Time at which to kill the group, and both clocks of the machine when the
    /// sender last knew that time to be right. A wall clock that has advanced
    /// further than the boot-time clock since then brings the kill forward.
    KillAt {
        /// On the boot-time clock.
        at: Moment,
        /// Both clocks, read before `at` was computed.
        known: ClockPair,
    },
    /// The command has ended; the watchdog can exit.
    Finish,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(leader) => writeln!(f, "group {leader}"),
            Self::KillAt { at, known } => {
                let since_boot = |moment: Moment| moment.since(Moment::from_boot(Duration::ZERO));
                // A wall clock before 1970 is read as 1970. A later jump then appears
                // longer.
                let wall = known.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
                let (at, boot) = (since_boot(*at).as_nanos(), since_boot(known.at()).as_nanos());
                writeln!(f, "kill-at {at} {boot} {}", wall.as_nanos())
            }
            Self::Finish => writeln!(f, "finish"),
        }
    }
}

impl Message {
    /// Parses a line without its line feed. Accepts only the exact output of `Display`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let message = match line.split_once(' ') {
            Some(("group", leader)) => leader.parse().ok().map(Self::Group),
            Some(("kill-at", times)) => kill_at(times),
            None if line == "finish" => Some(Self::Finish),
            _ => None,
        };
        message.filter(|message| message.to_string().strip_suffix('\n') == Some(line))
    }
}

fn kill_at(times: &str) -> Option<Message> {
    let mut times = times.split(' ').map(|nanos| nanos.parse().ok().map(Duration::from_nanos));
    let mut next = || times.next().flatten();
    let (at, boot, wall) = (next()?, next()?, next()?);
    let known = ClockPair::new(Moment::from_boot(boot), UNIX_EPOCH.checked_add(wall)?);
    Some(Message::KillAt { at: Moment::from_boot(at), known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let at = Moment::from_boot(Duration::from_nanos(12_345_678_901));
        let wall = UNIX_EPOCH + Duration::from_nanos(1_789_000_000_123_456_789);
        let known = ClockPair::new(Moment::from_boot(Duration::from_nanos(12_000_000_001)), wall);
        for message in [Message::Group(712), Message::KillAt { at, known }, Message::Finish] {
            let line = message.to_string();
            assert_eq!(Message::parse(line.strip_suffix('\n').unwrap()), Some(message));
        }
        for invalid in [
            "",
            "group",
            "group x",
            "group -1",
            "kill-at ",
            "kill-at 1",
            "kill-at 1 2 3 4",
            "finish now",
        ] {
            assert_eq!(Message::parse(invalid), None, "{invalid:?}");
        }
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_fuzz::Fuzz;

    use super::*;

    #[test]
    fn lines_are_parsed_exactly_or_refused() {
        Fuzz::new("keeper-message").words(&["group ", "kill-at ", "finish", "+"]).run(|input| {
            let line = String::from_utf8_lossy(input);
            match Message::parse(&line) {
                Some(message) => {
                    assert_eq!(message.to_string(), format!("{line}\n"));
                    format!("{message:?}")
                }
                None => "none".to_owned(),
            }
        });
    }
}

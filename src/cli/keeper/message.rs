//! What `lock` tells its keeper: one message per line.

use std::{fmt, time::Duration};

use crate::clock::Moment;

/// A message to the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Message {
    /// The group to watch over has this leader.
    Group(u32),
    /// The group must not live longer than this. Both processes read the same
    /// clock of the same machine.
    KillAt(Moment),
    /// The command has ended; there is nothing to watch over any more.
    Farewell,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(leader) => writeln!(f, "group {leader}"),
            Self::KillAt(moment) => {
                let since_boot = moment.since(Moment::from_boot(Duration::ZERO));
                writeln!(f, "kill-at {}", since_boot.as_nanos())
            }
            Self::Farewell => writeln!(f, "farewell"),
        }
    }
}

impl Message {
    /// Reads a line, without its end: exactly what is written.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let message = match line.split_once(' ') {
            Some(("group", leader)) => leader.parse().ok().map(Self::Group),
            Some(("kill-at", nanos)) => {
                let since_boot = Duration::from_nanos(nanos.parse().ok()?);
                Some(Self::KillAt(Moment::from_boot(since_boot)))
            }
            None if line == "farewell" => Some(Self::Farewell),
            _ => None,
        };
        message.filter(|message| message.to_string().strip_suffix('\n') == Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe() {
        let moment = Moment::from_boot(Duration::from_nanos(12_345_678_901));
        for message in [Message::Group(712), Message::KillAt(moment), Message::Farewell] {
            let line = message.to_string();
            assert_eq!(Message::parse(line.strip_suffix('\n').unwrap()), Some(message));
        }
        for garbage in ["", "group", "group x", "group -1", "kill-at ", "farewell now"] {
            assert_eq!(Message::parse(garbage), None, "{garbage:?}");
        }
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_fuzz::Fuzz;

    use super::*;

    #[test]
    fn lines_are_read_exactly_or_not_at_all() {
        Fuzz::new("keeper-message").words(&["group ", "kill-at ", "farewell", "+"]).run(|input| {
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

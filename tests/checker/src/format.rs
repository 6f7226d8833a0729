//! Times and entries, as a reader wants to see them.

use std::fmt;

use crate::{Entry, Event, Kind, Nanos};

/// A time in seconds: to the millisecond, and further only if there is more.
pub(crate) struct Seconds(pub(crate) Nanos);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        match rest {
            _ if rest % 1_000_000 == 0 => write!(f, "{whole}.{:03} s", rest / 1_000_000),
            _ if rest % 1_000 == 0 => write!(f, "{whole}.{:06} s", rest / 1_000),
            _ => write!(f, "{whole}.{rest:09} s"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Seconds(self.at).to_string();
        write!(f, "{at:>14}  {}", self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { op, client, daemon, lock } => {
                write!(f, "op {op}: client {client} asks daemon {daemon} for lock {lock}")
            }
            Self::Queued { op } => write!(f, "op {op} waits in the queue"),
            Self::Granted { op, token } => write!(f, "op {op} is granted token {token}"),
            Self::Refused { op, why, .. } => write!(f, "op {op} is refused: {why}"),
            Self::Valid { client, lock, token, until } => {
                let until = Seconds(*until);
                write!(f, "client {client} counts on lock {lock}, token {token}, until {until}")
            }
            Self::Release { op, client, lock, token } => {
                write!(f, "op {op}: client {client} releases lock {lock}, token {token}")
            }
            Self::Released { op } => write!(f, "op {op} is done: released"),
            Self::Lost { client, lock, token } => {
                write!(f, "client {client} knows that lock {lock}, token {token}, is lost")
            }
            Self::Told { client, lock, token } => {
                write!(f, "client {client} is told that lock {lock}, token {token}, is lost")
            }
            Self::StillGranted { client, lock, token } => {
                write!(f, "the daemon of client {client} still grants lock {lock}, token {token}")
            }
            Self::Used { client, lock, token, fenced, accepted } => {
                let how = if *fenced { "with" } else { "without showing" };
                let what = if *accepted { "accepted" } else { "refused" };
                write!(f, "client {client} acts under lock {lock} {how} token {token}: {what}")
            }
            Self::Detached { client } => write!(f, "client {client} has no stream any more"),
            Self::Freed { client, lock, token } => {
                write!(f, "lock {lock}, token {token}, is freed with client {client}'s stream")
            }
            Self::ClientDied { client } => write!(f, "client {client} dies"),
            Self::Campaign { op, value } => write!(f, "op {op} campaigns with {value:?}"),
            Self::Proclaim { op, client, lock, token, value } => write!(
                f,
                "op {op}: client {client} proclaims {value:?} for lock {lock}, token {token}"
            ),
            Self::Proclaimed { op } => write!(f, "op {op} is done: proclaimed"),
            Self::NotProclaimed { op } => write!(f, "op {op} failed: not proclaimed"),
            Self::ReadLeader { op, daemon, lock } => {
                write!(f, "op {op}: an observer asks daemon {daemon} for the leader of lock {lock}")
            }
            Self::Observe { op, daemon, lock } => {
                write!(f, "op {op}: an observer opens a stream for lock {lock} at daemon {daemon}")
            }
            Self::Observed { op, token, value, .. } => match (token, value) {
                (Some(token), Some(value)) => write!(f, "op {op} shows token {token}, {value:?}"),
                (Some(token), None) => write!(f, "op {op} shows token {token} without a value"),
                (None, Some(value)) => write!(f, "op {op} shows {value:?} without a token"),
                (None, None) => write!(f, "op {op} shows no leader"),
            },
            Self::ObserveEnded { op } => write!(f, "op {op}: the observer's stream ends"),
            Self::Holds { daemon, lock, first, last, until } => {
                let until = Seconds(*until);
                write!(
                    f,
                    "daemon {daemon} counts on its lease of lock {lock} until {until}, \
                     tokens {first} to {last}"
                )
            }
            Self::LetGo { daemon, lock } => {
                write!(f, "daemon {daemon} does not count on lock {lock} any more")
            }
            Self::DaemonDied { daemon } => write!(f, "daemon {daemon} dies"),
            Self::Leased { daemon, lock, until } => {
                write!(f, "lock {lock} is leased for daemon {daemon} until {}", Seconds(*until))
            }
            Self::Unleased { lock } => write!(f, "lock {lock} is not leased any more"),
            Self::Stored { daemon, lock, token } => {
                write!(f, "daemon {daemon} stored token {token} with lock {lock}")
            }
            Self::Deleted { lock } => write!(f, "the blob of lock {lock} is deleted"),
            Self::Overruled { lock, .. } => {
                write!(f, "an operator takes the lease of lock {lock} away in the storage")
            }
            Self::Reserved { daemon, last } => {
                write!(f, "daemon {daemon} reserved tokens up to {last}")
            }
            Self::Forgotten { upto, .. } => {
                write!(f, "the data directory has no record of holds up to token {upto}")
            }
            Self::Tampered { lock } => write!(f, "an operator changes the blob of lock {lock}"),
            Self::Disturbed { what } => write!(f, "begins: {what}"),
            Self::Undisturbed { what } => write!(f, "is over: {what}"),
            Self::ClockBroken { client } => {
                write!(f, "the clock of client {client} or of its daemon is wrong from here on")
            }
        }
    }
}

impl Event {
    /// What it is called in a file.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::Queued { .. } => "queued",
            Self::Granted { .. } => "granted",
            Self::Refused { .. } => "refused",
            Self::Valid { .. } => "valid",
            Self::Release { .. } => "release",
            Self::Released { .. } => "released",
            Self::Lost { .. } => "lost",
            Self::Told { .. } => "told",
            Self::StillGranted { .. } => "still_granted",
            Self::Used { .. } => "used",
            Self::Detached { .. } => "detached",
            Self::Freed { .. } => "freed",
            Self::ClientDied { .. } => "client_died",
            Self::Campaign { .. } => "campaign",
            Self::Proclaim { .. } => "proclaim",
            Self::Proclaimed { .. } => "proclaimed",
            Self::NotProclaimed { .. } => "not_proclaimed",
            Self::ReadLeader { .. } => "read_leader",
            Self::Observe { .. } => "observe",
            Self::Observed { .. } => "observed",
            Self::ObserveEnded { .. } => "observe_ended",
            Self::Holds { .. } => "holds",
            Self::LetGo { .. } => "let_go",
            Self::DaemonDied { .. } => "daemon_died",
            Self::Leased { .. } => "leased",
            Self::Unleased { .. } => "unleased",
            Self::Stored { .. } => "stored",
            Self::Deleted { .. } => "deleted",
            Self::Overruled { .. } => "overruled",
            Self::Reserved { .. } => "reserved",
            Self::Forgotten { .. } => "forgotten",
            Self::Tampered { .. } => "tampered",
            Self::Disturbed { .. } => "disturbed",
            Self::Undisturbed { .. } => "undisturbed",
            Self::ClockBroken { .. } => "clock_broken",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

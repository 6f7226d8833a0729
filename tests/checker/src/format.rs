//! Human-readable times and entries.

use std::fmt;

use crate::{Entry, Event, Kind, Nanos};

/// Time in seconds with three decimals, or six or nine if they are not zero.
pub(crate) struct Seconds(pub(crate) Nanos);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        match fraction {
            _ if fraction % 1_000_000 == 0 => write!(f, "{whole}.{:03} s", fraction / 1_000_000),
            _ if fraction % 1_000 == 0 => write!(f, "{whole}.{:06} s", fraction / 1_000),
            _ => write!(f, "{whole}.{fraction:09} s"),
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
                write!(f, "op {op}: client {client} requests lock {lock} from daemon {daemon}")
            }
            Self::Queued { op } => write!(f, "op {op} waits in the queue"),
            Self::Granted { op, token } => write!(f, "op {op} is granted token {token}"),
            Self::Refused { op, why, .. } => write!(f, "op {op} is refused: {why}"),
            Self::Valid { client, lock, token, until } => {
                let until = Seconds(*until);
                write!(f, "client {client} relies on lock {lock}, token {token}, until {until}")
            }
            Self::Release { op, client, lock, token } => {
                write!(f, "op {op}: client {client} releases lock {lock}, token {token}")
            }
            Self::Released { op } => write!(f, "op {op} succeeded: released"),
            Self::Lost { client, lock, token } => {
                write!(f, "client {client} lost lock {lock}, token {token}")
            }
            Self::LossNotified { client, lock, token } => {
                write!(f, "client {client} is notified that it lost lock {lock}, token {token}")
            }
            Self::StillGranted { client, lock, token } => {
                write!(f, "the daemon of client {client} still has lock {lock}, token {token}")
            }
            Self::Used { client, lock, token, fenced, accepted } => {
                let mode = if *fenced { "with" } else { "without sending" };
                let result = if *accepted { "accepted" } else { "refused" };
                write!(f, "client {client} acts under lock {lock} {mode} token {token}: {result}")
            }
            Self::Detached { client } => write!(f, "the stream of client {client} ended"),
            Self::Freed { client, lock, token } => {
                write!(
                    f,
                    "lock {lock}, token {token}, is freed: the stream of client {client} ended"
                )
            }
            Self::ClientDied { client } => write!(f, "client {client} dies"),
            Self::Campaign { op, value } => write!(f, "op {op} campaigns with {value:?}"),
            Self::Proclaim { op, client, lock, token, value } => write!(
                f,
                "op {op}: client {client} proclaims {value:?} for lock {lock}, token {token}"
            ),
            Self::Proclaimed { op } => write!(f, "op {op} succeeded: proclaimed"),
            Self::NotProclaimed { op } => write!(f, "op {op} failed: not proclaimed"),
            Self::ReadLeader { op, daemon, lock } => {
                write!(f, "op {op}: an observer asks daemon {daemon} for the leader of lock {lock}")
            }
            Self::Observe { op, daemon, lock } => {
                write!(f, "op {op}: an observer opens a stream for lock {lock} at daemon {daemon}")
            }
            Self::Observed { op, token, value, .. } => match (token, value) {
                (Some(token), Some(value)) => write!(f, "op {op} returns token {token}, {value:?}"),
                (Some(token), None) => write!(f, "op {op} returns token {token} without a value"),
                (None, Some(value)) => write!(f, "op {op} returns {value:?} without a token"),
                (None, None) => write!(f, "op {op} returns no leader"),
            },
            Self::ObserveEnded { op } => write!(f, "op {op}: the observer's stream ends"),
            Self::Holds { daemon, lock, first, last, until } => {
                let until = Seconds(*until);
                write!(
                    f,
                    "daemon {daemon} relies on its lease of lock {lock} until {until}, \
                     tokens {first} to {last}"
                )
            }
            Self::HoldEnded { daemon, lock } => {
                write!(f, "daemon {daemon} no longer relies on a lease of lock {lock}")
            }
            Self::DaemonDied { daemon } => write!(f, "daemon {daemon} dies"),
            Self::Leased { daemon, lock, until } => {
                write!(f, "lock {lock} is leased for daemon {daemon} until {}", Seconds(*until))
            }
            Self::Unleased { lock } => write!(f, "the lease of lock {lock} ended"),
            Self::Stored { daemon, lock, token } => {
                write!(f, "daemon {daemon} stored token {token} with lock {lock}")
            }
            Self::Deleted { lock } => write!(f, "the blob of lock {lock} is deleted"),
            Self::Overruled { lock, .. } => {
                write!(f, "an operator breaks the lease of lock {lock} in the storage")
            }
            Self::Reserved { daemon, last } => {
                write!(f, "daemon {daemon} reserved tokens up to {last}")
            }
            Self::Forgotten { upto, .. } => {
                write!(f, "the data directory has no record of holds up to token {upto}")
            }
            Self::Tampered { lock } => write!(f, "an operator changes the blob of lock {lock}"),
            Self::Disturbed { what } => write!(f, "fault begins: {what}"),
            Self::Undisturbed { what } => write!(f, "fault ends: {what}"),
            Self::ClockBroken { client } => {
                write!(f, "the clock of client {client} or of its daemon is wrong from here on")
            }
        }
    }
}

impl Event {
    /// Name of the event in a file.
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
            Self::LossNotified { .. } => "told",
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
            Self::HoldEnded { .. } => "let_go",
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

//! State of a lock in detail, and the reason why its queue does not advance.

use std::{fmt, sync::Arc, time::Duration};

use super::{LockView, SessionId, Sessions};
use crate::lock::{Blocker, LeaseView};
use leasehold_store::Error;
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName};

/// State of a lock in detail, as known to this daemon.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Holder and number of waiters.
    pub view: LockView,
    /// Grant of a session of this daemon.
    pub grant: Option<GrantView>,
    /// State of the lease.
    pub lease: LeaseView,
    /// First waiters, in order.
    pub waiters: Vec<WaiterView>,
    /// True if the daemon is shutting down.
    pub is_draining: bool,
}

/// Remaining time of a grant. It ends at the earliest of these times unless it is
/// extended.
#[derive(Clone, Copy, Debug)]
pub struct GrantView {
    /// Time until the grant ends, unless its session and its lease are extended.
    pub time_left: Duration,
    /// Time until the session expires without another keep-alive.
    pub session_left: Duration,
    /// Time since the last keep-alive of the session.
    pub last_keep_alive: Duration,
    /// TTL of the session.
    pub ttl: Duration,
    /// Time until the grant ends in any case: because of its maximum hold time or a
    /// step-down.
    pub ends_in: Option<Duration>,
    /// True if the session has a stream.
    pub is_connected: bool,
    /// True if the grant is lost, and the lock is not free yet.
    pub is_ending: bool,
    /// True if the holder leads an election.
    pub is_leader: bool,
}

/// A waiter of a lock.
#[derive(Clone, Debug)]
pub struct WaiterView {
    /// Description of the client.
    pub holder: Arc<Holder>,
    /// Session of the acquire.
    pub session: Option<SessionId>,
    /// Time since the acquire arrived.
    pub waiting_for: Duration,
    /// Time until the acquire is refused, if it is limited.
    pub times_out_in: Option<Duration>,
    /// True if its session has a stream. Other waiters are passed over.
    pub is_connected: bool,
    /// True if it campaigns for the leadership of an election.
    pub is_candidate: bool,
}

/// Reason why a lock's queue does or does not advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagnosis {
    /// The lock has no holder and no waiter.
    Free,
    /// The lock has a holder and no waiter.
    Held,
    /// Waiters wait for the holder to release the lock.
    WaitingForHolder,
    /// Waiters wait for a holder whose session sends no keep-alives.
    HolderSilent,
    /// A grant is lost. The lock is free when its holder has released it or must have
    /// stopped.
    Ending,
    /// Waiters wait for a lease that another daemon holds.
    HeldByPeer,
    /// The acquire call is pending.
    Acquiring,
    /// The lease of the hold before is being released.
    Releasing,
    /// The store is unavailable.
    StoreUnavailable,
    /// The daemon is recovering from an unclean shutdown.
    Recovering,
    /// The lock's record is invalid.
    Frozen,
    /// No waiter has a stream.
    WaitersDisconnected,
    /// The daemon is shutting down.
    Draining,
}

impl Sessions {
    /// Returns the state of a lock in detail, with at most `max_waiters` waiters.
    #[must_use]
    pub fn explain(&self, name: &LockName, max_waiters: usize, now: Moment) -> Explanation {
        let lock = self.locks.find(name);
        let waiters = lock.map(|lock| self.locks.queue_view(lock, max_waiters, now));
        let waiters = waiters.unwrap_or_default().into_iter().map(|waiter| WaiterView {
            session: self.sessions.get(waiter.session.index()).map(|session| session.id),
            holder: waiter.holder,
            waiting_for: waiter.waiting_for,
            times_out_in: waiter.times_out_in,
            is_connected: waiter.is_connected,
            is_candidate: waiter.is_candidate,
        });
        Explanation {
            view: self.view(name, now),
            grant: lock.and_then(|lock| self.grant_view(lock, now)),
            lease: lock.map_or(LeaseView::None, |lock| self.locks.lease_view(lock, now)),
            waiters: waiters.collect(),
            is_draining: self.draining.is_some(),
        }
    }

    /// Returns the remaining time of a grant.
    pub(super) fn grant_view(&self, lock: crate::lock::LockId, now: Moment) -> Option<GrantView> {
        let grant = self.locks.grant(lock)?;
        let session = self.sessions.get(grant.session.index())?;
        let end = [self.locks.limit(lock), grant.ends_at, Some(session.deadline())];
        let end = end.into_iter().flatten().min()?;
        Some(GrantView {
            time_left: end.since(now),
            session_left: session.deadline().since(now),
            last_keep_alive: now.since(session.last_keep_alive_at),
            ttl: session.ttl,
            ends_in: grant.hold_until.map(|until| until.since(now)),
            is_connected: session.stream.is_some(),
            is_ending: !grant.is_active(),
            is_leader: grant.value.is_some(),
        })
    }
}

impl Explanation {
    /// Returns the reason why the queue does or does not advance.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let is_waiting = self.view.waiting > 0;
        match (&self.grant, &self.lease) {
            (Some(grant), _) if grant.is_ending => Diagnosis::Ending,
            (Some(_), _) if !is_waiting => Diagnosis::Held,
            (Some(grant), _) if !grant.is_connected => Diagnosis::HolderSilent,
            (Some(_), _) => Diagnosis::WaitingForHolder,
            (None, LeaseView::Blocked { blocker, .. }) => match blocker {
                Blocker::HeldByPeer { .. } => Diagnosis::HeldByPeer,
                Blocker::StoreError(Error::Unavailable { .. }) => Diagnosis::StoreUnavailable,
                Blocker::StoreError(Error::Recovering { .. }) => Diagnosis::Recovering,
                Blocker::StoreError(Error::DataLoss { .. }) => Diagnosis::Frozen,
            },
            (None, LeaseView::Acquiring { .. }) => Diagnosis::Acquiring,
            (None, LeaseView::Releasing { .. }) => Diagnosis::Releasing,
            _ if self.is_draining => Diagnosis::Draining,
            _ if is_waiting && !self.waiters.iter().any(|waiter| waiter.is_connected) => {
                Diagnosis::WaitersDisconnected
            }
            _ if self.view.held.is_some() => Diagnosis::HeldByPeer,
            _ => Diagnosis::Free,
        }
    }

    /// Returns one or two sentences: why the queue does or does not advance.
    #[must_use]
    pub fn summary(&self) -> String {
        let diagnosis = self.diagnosis();
        let detail = match (&self.lease, self.grant) {
            (LeaseView::Blocked { blocker: Blocker::StoreError(error), .. }, None) => match error {
                Error::Unavailable { why, .. } => format!(": {why}"),
                Error::Recovering { .. } => return error.to_string(),
                Error::DataLoss { .. } => format!(": {error}"),
            },
            (LeaseView::Held(lease), _) if lease.is_at_risk => {
                "; its lease is at risk, because renewals are failing".to_owned()
            }
            (_, Some(grant)) if diagnosis == Diagnosis::HolderSilent => {
                format!("; it expires in {}", whole_seconds(grant.session_left))
            }
            (_, Some(grant)) if grant.is_ending => {
                format!("; the lock is free in {} at the latest", whole_seconds(grant.time_left))
            }
            _ => String::new(),
        };
        format!("{diagnosis}{detail}")
    }

    /// Returns the next steps of an operator, most useful first.
    #[must_use]
    pub fn advice(&self) -> Vec<String> {
        let command = |verb, options: &str| command_line(verb, &self.view.name, options);
        let break_lock = format!(
            "if the holder is stuck, break the lock: {}",
            command("break", "--reason REASON")
        );
        let is_leader = self.grant.is_some_and(|grant| grant.is_leader);
        let step_down = is_leader.then(|| {
            let step_down = command("step-down", "--reason REASON");
            format!("ask the leader to step down: {step_down}")
        });
        match self.diagnosis() {
            Diagnosis::WaitingForHolder => step_down.into_iter().chain([break_lock]).collect(),
            Diagnosis::HeldByPeer => {
                let peer = self.view.held.as_ref().and_then(|held| held.endpoint.as_ref());
                let ask = peer.map(|peer| {
                    let options = format!("-e {}", peer.address);
                    format!("ask its daemon: {}", command("explain", &options))
                });
                ask.into_iter().chain([break_lock]).collect()
            }
            Diagnosis::HolderSilent => vec![
                "check the holder's process and its network; its session expires by itself".into(),
            ],
            Diagnosis::StoreUnavailable => {
                vec!["check the store: leasehold doctor".into()]
            }
            Diagnosis::Frozen => {
                vec!["repair the lock's record: see docs/troubleshooting.md".into()]
            }
            Diagnosis::WaitersDisconnected => {
                vec!["check the waiting clients: none of them is connected".into()]
            }
            Diagnosis::Held
            | Diagnosis::Free
            | Diagnosis::Ending
            | Diagnosis::Acquiring
            | Diagnosis::Releasing
            | Diagnosis::Recovering
            | Diagnosis::Draining => Vec::new(),
        }
    }
}

impl Diagnosis {
    /// Machine-readable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::WaitingForHolder => "waiting_for_holder",
            Self::HolderSilent => "holder_silent",
            Self::Ending => "ending",
            Self::HeldByPeer => "held_by_peer",
            Self::Acquiring => "acquiring",
            Self::Releasing => "releasing",
            Self::StoreUnavailable => "store_unavailable",
            Self::Recovering => "recovering",
            Self::Frozen => "frozen",
            Self::WaitersDisconnected => "waiters_disconnected",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "the lock is free",
            Self::Held => "the lock is held, and no client waits for it",
            Self::WaitingForHolder => "the waiters wait for the holder to release the lock",
            Self::HolderSilent => {
                "the holder is not connected, and its session has not expired yet"
            }
            Self::Ending => {
                "the grant is lost, but its holder may not have stopped yet: the lock passes on \
                 when the holder releases it or has reached its deadline"
            }
            Self::HeldByPeer => "another daemon holds the lease of the lock",
            Self::Acquiring => "the lease is being acquired",
            Self::Releasing => "the lease of the previous holder is being released",
            Self::StoreUnavailable => {
                "the lease can't be acquired, because the store is unavailable"
            }
            Self::Recovering => "the daemon grants no locks yet, after an unclean shutdown",
            Self::Frozen => "the lock is frozen",
            Self::WaitersDisconnected => {
                "no waiter is connected, so that none can be granted the lock"
            }
            Self::Draining => "the daemon is shutting down and grants no locks",
        })
    }
}

/// Returns a duration in whole seconds, rounded up, as in "3s".
fn whole_seconds(duration: Duration) -> String {
    format!("{}s", duration.as_millis().div_ceil(1000))
}

/// Returns the command line of an operator for a lock. A name that begins with a hyphen
/// comes last, so that it is not parsed as an option.
fn command_line(verb: &str, lock: &LockName, options: &str) -> String {
    let namespace = match lock.namespace() {
        leasehold_types::name::DEFAULT_NAMESPACE => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    let name = shell_word(lock.name());
    if lock.name().starts_with('-') {
        format!("leasehold {verb}{namespace} {options} -- {name}")
    } else {
        format!("leasehold {verb}{namespace} {name} {options}")
    }
}

/// Quotes a name for a POSIX shell, if necessary.
fn shell_word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_hyphen_are_last() {
        let line = |namespace, name| {
            let lock = LockName::parse(namespace, name).unwrap();
            command_line("break", &lock, "--reason R")
        };
        assert_eq!(line("", "a"), "leasehold break a --reason R");
        assert_eq!(line("b", "a"), "leasehold break -n b a --reason R");
        assert_eq!(line("b", "-x"), "leasehold break -n b --reason R -- -x");
        assert_eq!(line("", "-x y"), "leasehold break --reason R -- '-x y'");
    }

    #[test]
    fn names_are_quoted_for_shells() {
        assert_eq!(shell_word("orders/2024"), "orders/2024");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("-x"), "-x");
    }
}

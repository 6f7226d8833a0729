//! What is shown of locks, and said about them, for people and programs.

use std::{fmt::Write, sync::Arc, time::Duration};

use super::{Message, Queued, SessionId, Sessions};
use crate::error::Problem;
use crate::lock::{Cause, Grant, Handle, LockId, Obstacle, Refusal, SessionKey};
use leasehold_store as lease;
use leasehold_store::{Breaker, Endpoint, LeaseInfo, Value};
use leasehold_time::Moment;
use leasehold_types::{Holder, Reason};
use leasehold_types::{LockName, Token, TokenRange};

/// A lock as it is now, as far as this daemon knows.
#[derive(Clone, Debug)]
pub struct LockView {
    /// The lock.
    pub name: LockName,
    /// Its holder.
    pub held: Option<HeldView>,
    /// How many wait for it here.
    pub waiting: usize,
}

impl LockView {
    /// Who leads, if it is an election. Whoever has just leased a lock at another
    /// daemon does not before it has said who it is.
    #[must_use]
    pub fn leader(&self) -> Option<&HeldView> {
        self.held.as_ref().filter(|held| held.session.is_some() || held.holder.is_some())
    }
}

/// A lock's holder.
#[derive(Clone, Debug, Default)]
pub struct HeldView {
    /// Who, as far as it is known.
    pub holder: Option<Arc<Holder>>,
    /// The session, if it is one of this daemon's.
    pub session: Option<SessionId>,
    /// The token, if it is known.
    pub token: Option<Token>,
    /// If it is held through another daemon: the tokens of that hold, of which
    /// one is the holder's.
    pub among: Option<TokenRange>,
    /// For how long, if it is known.
    pub held_for: Option<Duration>,
    /// Once the grant is lost: when the lock is free at the latest.
    pub free_within: Option<Duration>,
    /// What it shows, if it leads.
    pub value: Option<Value>,
    /// Which daemon has the lease, if it is another one and known.
    pub daemon: Option<Arc<str>>,
    /// Address of that daemon, if known.
    pub endpoint: Option<Arc<Endpoint>>,
}

impl HeldView {
    /// Held through another daemon: only what that one wrote is known.
    #[must_use]
    pub fn elsewhere(info: &LeaseInfo) -> Self {
        Self {
            holder: info.holder.clone(),
            session: None,
            token: info.leader,
            among: info.tokens,
            held_for: info.held_for,
            free_within: None,
            value: info.value.clone(),
            daemon: info.daemon.clone(),
            endpoint: info.endpoint.clone(),
        }
    }
}

impl Sessions {
    /// A lock as it is now.
    #[must_use]
    pub fn view(&self, name: &LockName, now: Moment) -> LockView {
        let lock = self.locks.find(name);
        LockView {
            name: name.clone(),
            held: lock.and_then(|lock| self.held_view(lock, now)),
            waiting: lock.map_or(0, |lock| self.locks.waiting(lock)),
        }
    }

    /// When the lock would be free at the latest if it were broken now.
    #[must_use]
    pub fn free_within(&self, name: &LockName, now: Moment) -> Option<Duration> {
        self.free_by(self.locks.find(name)?, now).map(|at| at.since(now))
    }

    fn held_view(&self, lock: LockId, now: Moment) -> Option<HeldView> {
        if let Some(grant) = self.locks.grant(lock) {
            let (holder, held_for) = self.holder(grant, now);
            return Some(HeldView {
                holder,
                session: self.sessions.get(grant.session.0 as usize).map(|session| session.id),
                token: Some(grant.token),
                among: None,
                held_for: Some(held_for),
                free_within: grant.ends_at.map(|at| at.since(now)),
                value: grant.value.clone(),
                daemon: None,
                endpoint: None,
            });
        }
        elsewhere(self.locks.obstacle(lock)?)
    }

    fn holder(&self, grant: &Grant, now: Moment) -> (Option<Arc<Holder>>, Duration) {
        let session = self.sessions.get(grant.session.0 as usize);
        (session.map(|session| Arc::clone(&session.holder)), now.since(grant.since))
    }

    /// Whether another acquire of this session holds the lock.
    fn is_held_by(&self, session: SessionKey, lock: LockId) -> bool {
        self.locks.grant(lock).is_some_and(|grant| grant.session == session)
    }

    pub(super) fn queued(
        &self,
        session: SessionKey,
        request: u64,
        lock: LockId,
        position: u32,
        now: Moment,
    ) -> Message {
        let held = self.held_view(lock, now);
        let note = match self.locks.obstacle(lock) {
            Some(Obstacle::Trouble(error)) => error.to_string(),
            _ => String::new(),
        };
        Message::Queued(Box::new(Queued {
            request,
            position,
            holder: held.as_ref().and_then(|held| held.holder.clone()),
            held_for: held.and_then(|held| held.held_for),
            held_by_same_session: self.is_held_by(session, lock),
            note,
        }))
    }

    /// What a refused acquire is told: what happened, to which lock, who holds
    /// it, what to do.
    pub(super) fn refusal(
        &self,
        session: SessionKey,
        name: LockName,
        why: Refusal,
        now: Moment,
    ) -> Problem {
        // Once nobody waits the lock is forgotten, and what was in the way with
        // it.
        let held = match &why {
            Refusal::TimedOut(Some(obstacle)) | Refusal::Obstacle(obstacle) => elsewhere(obstacle),
            _ => self.locks.find(&name).and_then(|lock| self.held_view(lock, now)),
        };
        let same_session =
            self.locks.find(&name).is_some_and(|lock| self.is_held_by(session, lock));
        let (reason, message, retry_after) = match why {
            Refusal::Held if same_session => {
                let text = format!(
                    "lock {name} is held by another acquire of the same session; release that \
                     grant first, or wait for it"
                );
                (Reason::Held, text, None)
            }
            Refusal::Held => (Reason::Held, format!("lock {name} is {}", held_by(&held)), None),
            Refusal::TimedOut(obstacle) => {
                let text = match obstacle {
                    Some(Obstacle::Trouble(error)) => {
                        format!("timed out waiting for lock {name}: {error}")
                    }
                    _ if same_session => format!(
                        "timed out waiting for lock {name}, held by another acquire of the same \
                         session"
                    ),
                    _ if held.is_none() => format!("timed out waiting for lock {name}"),
                    _ => format!("timed out waiting for lock {name}, {}", held_by(&held)),
                };
                (Reason::TimedOut, text, None)
            }
            Refusal::Obstacle(Obstacle::Elsewhere { .. }) => {
                (Reason::Held, format!("lock {name} is {}", held_by(&held)), None)
            }
            Refusal::Obstacle(Obstacle::Trouble(error)) => {
                let state = match error {
                    lease::Error::DataLoss { .. } => "is frozen",
                    _ => "is not available yet",
                };
                let text = format!("lock {name} {state}: {error}");
                let (reason, retry_after) = match error {
                    lease::Error::Unavailable { retry_after, .. } => {
                        (Reason::StoreUnavailable, retry_after)
                    }
                    lease::Error::Recovering { remaining } => (Reason::Recovering, Some(remaining)),
                    lease::Error::DataLoss { .. } => (Reason::DataLoss, None),
                };
                (reason, text, retry_after)
            }
            Refusal::ShuttingDown => {
                let text = format!("lock {name} refused: the daemon is shutting down");
                (Reason::ShuttingDown, text, None)
            }
            Refusal::Limit(limit) => {
                let text = format!("lock {name} refused: the daemon has reached {limit}");
                (Reason::Limit, text, None)
            }
        };
        Problem {
            lock: Some(name),
            holder: held.as_ref().and_then(|held| held.holder.clone()),
            held_for: held.and_then(|held| held.held_for),
            held_by_same_session: same_session,
            retry_after,
            ..Problem::new(reason, message)
        }
    }
}

/// A holder that is known only as what is in the way of the lease.
fn elsewhere(obstacle: &Obstacle) -> Option<HeldView> {
    match obstacle {
        Obstacle::Elsewhere { by } => {
            Some(by.as_deref().map(HeldView::elsewhere).unwrap_or_default())
        }
        Obstacle::Trouble(_) => None,
    }
}

fn held_by(held: &Option<HeldView>) -> String {
    let mut text = String::from("held by ");
    match held.as_ref().map(|held| (held.holder.as_ref(), held.session)) {
        Some((Some(holder), _)) => _ = write!(text, "{}", holder.quoted()),
        Some((None, None)) => text.push_str("another daemon"),
        _ => text.push_str("another session"),
    }
    if let Some(length) = held.as_ref().and_then(|held| held.held_for) {
        let seconds = Duration::from_secs(length.as_secs());
        _ = write!(text, " for {}", humantime::format_duration(seconds));
    }
    text
}

/// The end of a grant that its holder did not ask for. The message says what
/// happened and why; the holder stops and releases.
pub(super) fn lost(handle: Handle, name: &LockName, cause: &Cause) -> Message {
    let (reason, message) = match cause {
        Cause::Expired => {
            (Reason::Expired, format!("lost lock {name}: the session expired without a keep-alive"))
        }
        Cause::Broken { by, reason } => {
            (Reason::Broken, format!("lock {name} was broken by {by} ({reason:?})"))
        }
        Cause::HeldTooLong => {
            (Reason::HeldTooLong, format!("lost lock {name}: its maximum hold time is over"))
        }
        Cause::LeaseLost { why } => (Reason::LeaseLost, format!("lost lock {name}: {why}")),
        Cause::SteppedDown { by, reason } => (
            Reason::StepDown,
            format!(
                "lost lock {name}: {by} asked the leader to step down ({reason:?}), and the time \
                 for it is over"
            ),
        ),
        Cause::ShuttingDown => {
            (Reason::ShuttingDown, format!("lost lock {name}: the daemon is shutting down"))
        }
    };
    let operator = match cause {
        Cause::Broken { by, reason } | Cause::SteppedDown { by, reason } => {
            Some(operator(by, reason))
        }
        Cause::Expired | Cause::HeldTooLong | Cause::LeaseLost { .. } | Cause::ShuttingDown => None,
    };
    Message::Lost { handle, reason, message: message.into(), operator }
}

fn operator(by: &str, reason: &str) -> Box<Breaker> {
    Box::new(Breaker { by: by.into(), reason: reason.into() })
}

/// A warning's message leaves out its time: `ends_in` has it.
pub(super) fn stopping(handle: Handle, name: &LockName, ends_in: Duration) -> Message {
    let message = format!("the daemon is shutting down: release lock {name}").into();
    let reason = Reason::ShuttingDown;
    Message::AtRisk { handle, reason, message, ends_in, operator: None }
}

pub(super) fn asked_to_step_down(
    handle: Handle,
    name: &LockName,
    by: &str,
    reason: &str,
    ends_in: Duration,
) -> Message {
    let message = format!("{by} asked the leader of {name} to step down ({reason:?})").into();
    let operator = Some(operator(by, reason));
    Message::AtRisk { handle, reason: Reason::StepDown, message, ends_in, operator }
}

pub(super) fn at_risk(handle: Handle, name: &LockName, ends_in: Duration) -> Message {
    let message = format!("lock {name} is at risk: lease renewals are failing").into();
    let reason = Reason::StoreUnavailable;
    Message::AtRisk { handle, reason, message, ends_in, operator: None }
}

//! Wording of refusals, losses and warnings.

use std::{fmt::Write, time::Duration};

use super::{HeldView, Message, Sessions, view::held_by_peer};
use crate::{
    error::RequestError,
    lock::{Blocker, Cause, Handle, Refusal, SessionKey},
};
use leasehold_store as lease;
use leasehold_store::Breaker;
use leasehold_time::Moment;
use leasehold_types::{LockName, Reason};

impl Sessions {
    /// What a refused acquire is told: what happened, to which lock, who holds
    /// it, what to do.
    pub(super) fn refusal(
        &self,
        session: SessionKey,
        name: LockName,
        why: Refusal,
        now: Moment,
    ) -> RequestError {
        // Once nobody waits the lock is forgotten, and what was in the way with
        // it.
        let held = match &why {
            Refusal::TimedOut(Some(blocker)) | Refusal::Blocker(blocker) => held_by_peer(blocker),
            _ => self.locks.find(&name).and_then(|lock| self.held_view(lock, now)),
        };
        let same_session =
            self.locks.find(&name).is_some_and(|lock| self.is_held_by(session, lock));
        let (reason, message, retry_after) = explain(&name, why, held.as_ref(), same_session);
        RequestError {
            lock: Some(name),
            holder: held.as_ref().and_then(|held| held.holder.clone()),
            held_for: held.and_then(|held| held.held_for),
            held_by_same_session: same_session,
            retry_after,
            ..RequestError::new(reason, message)
        }
    }
}

/// Explains a refusal: the reason, the message, and when a retry makes sense.
fn explain(
    name: &LockName,
    why: Refusal,
    held: Option<&HeldView>,
    same_session: bool,
) -> (Reason, String, Option<Duration>) {
    match why {
        Refusal::Held if same_session => {
            let text = format!(
                "lock {name} is held by another acquire of the same session; release that \
                 grant first, or wait for it"
            );
            (Reason::Held, text, None)
        }
        Refusal::Held => (Reason::Held, format!("lock {name} is {}", held_by(held)), None),
        Refusal::TimedOut(blocker) => {
            let text = match blocker {
                Some(Blocker::StoreError(error)) => {
                    format!("timed out waiting for lock {name}: {error}")
                }
                _ if same_session => format!(
                    "timed out waiting for lock {name}, held by another acquire of the same \
                     session"
                ),
                _ if held.is_none() => format!("timed out waiting for lock {name}"),
                _ => format!("timed out waiting for lock {name}, {}", held_by(held)),
            };
            (Reason::TimedOut, text, None)
        }
        Refusal::Blocker(Blocker::HeldByPeer { .. }) => {
            (Reason::Held, format!("lock {name} is {}", held_by(held)), None)
        }
        Refusal::Blocker(Blocker::StoreError(error)) => {
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
    }
}

fn held_by(held: Option<&HeldView>) -> String {
    let mut text = String::from("held by ");
    match held.map(|held| (held.holder.as_ref(), held.session)) {
        Some((Some(holder), _)) => _ = write!(text, "{}", holder.quoted()),
        Some((None, None)) => text.push_str("another daemon"),
        _ => text.push_str("another session"),
    }
    if let Some(length) = held.and_then(|held| held.held_for) {
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
        Cause::MaxHoldTime => {
            (Reason::MaxHoldTime, format!("lost lock {name}: its maximum hold time is over"))
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
        Cause::Expired | Cause::MaxHoldTime | Cause::LeaseLost { .. } | Cause::ShuttingDown => None,
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

/// The answer to a proclaim that observers will not see.
pub(super) fn not_proclaimed(too_many: bool) -> RequestError {
    if too_many {
        RequestError::new(Reason::Limit, "too many values wait to be stored; wait for the answers")
    } else {
        RequestError::new(
            Reason::UnknownHandle,
            "the lead was given up or lost before others could see the new value",
        )
    }
}

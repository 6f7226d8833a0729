//! Messages of refusals, losses and warnings.

use std::{fmt::Write, time::Duration};

use super::{HeldView, Message, Sessions, view::peer_view};
use crate::{
    error::RequestError,
    lock::{Blocker, Cause, Handle, Refusal, SessionKey},
};
use leasehold_store as lease;
use leasehold_store::Breaker;
use leasehold_time::Moment;
use leasehold_types::{LockName, Reason};

impl Sessions {
    /// Returns the error for a refused acquire: the lock, the cause, its holder, and the
    /// fix.
    pub(super) fn refusal(
        &self,
        session: SessionKey,
        name: LockName,
        why: Refusal,
        now: Moment,
    ) -> RequestError {
        // A lock is removed with its last waiter, and its blocker with it.
        let held = match &why {
            Refusal::TimedOut(Some(blocker)) | Refusal::Blocker(blocker) => peer_view(blocker),
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

/// Returns the reason, the message and the retry delay of a refusal.
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
    if let Some(held_for) = held.and_then(|held| held.held_for) {
        let seconds = Duration::from_secs(held_for.as_secs());
        _ = write!(text, " for {}", humantime::format_duration(seconds));
    }
    text
}

/// Returns the notification of a loss. Its message states the event and the cause; the
/// holder must stop and release.
pub(super) fn lost(handle: Handle, name: &LockName, cause: &Cause) -> Message {
    let (reason, message) = match cause {
        Cause::Expired => {
            let text = format!("lost lock {name}: the session expired without a keep-alive");
            (Reason::Expired, text)
        }
        Cause::Broken { by, reason } => {
            (Reason::Broken, format!("lock {name} was broken by {by} ({reason:?})"))
        }
        Cause::MaxHoldTime => {
            (Reason::MaxHoldTime, format!("lost lock {name}: its maximum hold time has ended"))
        }
        Cause::LeaseLost { why } => (Reason::LeaseLost, format!("lost lock {name}: {why}")),
        Cause::SteppedDown { by, reason } => (
            Reason::StepDown,
            format!(
                "lost lock {name}: {by} asked the leader to step down ({reason:?}), and the \
                 timeout has passed"
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

/// Returns the warning that the daemon is shutting down. As in all warnings, the message
/// does not contain the time, which is in `ends_in`.
pub(super) fn shutting_down(handle: Handle, name: &LockName, ends_in: Duration) -> Message {
    let message = format!("the daemon is shutting down: release lock {name}").into();
    let reason = Reason::ShuttingDown;
    Message::AtRisk { handle, reason, message, ends_in, operator: None }
}

pub(super) fn step_down_requested(
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

/// Returns the error for a proclaim whose value was not published.
pub(super) fn not_proclaimed(too_many: bool) -> RequestError {
    if too_many {
        RequestError::new(
            Reason::Limit,
            "proclaim refused: too many proclaims of this lock are pending; wait for their \
             responses",
        )
    } else {
        RequestError::new(
            Reason::UnknownHandle,
            "proclaim failed: the leadership ended before the value was published",
        )
    }
}

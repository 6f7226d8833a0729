//! Pending acquire.

use std::time::Duration;

use leasehold_types::name::DEFAULT_NAMESPACE;

use crate::{Error, Holder, Progress, Reason, pb, value::Value};
use leasehold_time::Moment;

/// Time limit of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Not,
    AtMost(Duration),
    Forever,
}

/// Options of an acquire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AcquireOptions {
    pub(crate) max_hold_time: Option<Duration>,
    pub(crate) lease_duration: Option<Duration>,
    /// Value to publish as the leader. If set, the acquire is a campaign.
    pub(crate) value: Option<Value>,
    /// Trace that the acquire belongs to.
    pub(crate) trace: Option<Box<pb::TraceContext>>,
}

/// Acquire without a response.
#[derive(Debug)]
pub(crate) struct PendingAcquire {
    pub(crate) lock: pb::LockRef,
    pub(crate) wait: Wait,
    pub(crate) options: AcquireOptions,
    /// Time at which it fails if the daemon is unreachable.
    pub(crate) limit: Option<Moment>,
    /// Request number; `None` until it is sent, or sent again.
    pub(crate) request: Option<u64>,
    /// False once the caller has dropped its future. A grant is then released.
    pub(crate) wanted: bool,
}

impl PendingAcquire {
    pub(crate) fn new(
        lock: pb::LockRef,
        wait: Wait,
        options: AcquireOptions,
        limit: Option<Moment>,
    ) -> Self {
        Self { lock, wait, options, limit, request: None, wanted: true }
    }

    /// Returns the message with the remaining wait time.
    pub(crate) fn message(&self, request: u64, now: Moment) -> pb::Acquire {
        let wait_ms = match self.wait {
            Wait::Not => Some(0),
            Wait::AtMost(wait) => {
                Some(up_to_millis(self.limit.map_or(wait, |limit| limit.since(now))))
            }
            Wait::Forever => None,
        };
        pb::Acquire {
            request,
            lock: Some(self.lock.clone()),
            wait_ms,
            max_hold_time_ms: self.options.max_hold_time.map(up_to_millis),
            lease_duration_ms: (self.options.lease_duration)
                .map(|length| u32::try_from(up_to_millis(length)).unwrap_or(u32::MAX)),
            value: self.options.value.as_ref().map(Value::encoded),
            trace_context: self.options.trace.clone(),
        }
    }

    pub(crate) fn is_overdue(&self, now: Moment) -> bool {
        self.limit.is_some_and(|limit| now >= limit)
    }

    /// Returns the error for a request without a response. `cause` is that of the
    /// disconnect, if the session has no stream.
    pub(crate) fn unanswered(&self, waited: Option<Duration>, cause: Option<&str>) -> Error {
        let (verb, kind) = match self.options.value {
            Some(_) => ("lead", "election"),
            None => ("acquire", "lock"),
        };
        let pb::LockRef { namespace, name } = &self.lock;
        let place = match namespace.as_str() {
            "" | DEFAULT_NAMESPACE => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
        let subject = format!("{kind} {name:?}{place}");
        let limit = match self.wait {
            Wait::AtMost(limit) => Some(limit),
            Wait::Not | Wait::Forever => None,
        };
        let why = cause.unwrap_or("no response from the daemon");
        Error::unavailable(match (self.wait, waited.or(limit)) {
            (Wait::Not, Some(waited)) if cause.is_none() => {
                format!("no response from the daemon within {waited:?}")
            }
            (Wait::AtMost(_), Some(waited)) => {
                format!("timed out after {waited:?} waiting for {subject}: {why}")
            }
            _ => format!("can't {verb} {subject}: {why}"),
        })
    }

    /// Returns the error for a refusal; `None` if the acquire keeps waiting, because
    /// the next daemon may grant it.
    pub(crate) fn refusal(&self, refused: pb::Refused) -> Option<Error> {
        let reason = leasehold_protocol::reason_from_wire(refused.reason());
        if reason == Reason::ShuttingDown && self.wait != Wait::Not {
            return None;
        }
        Some(refusal(&self.lock.name, reason, refused))
    }
}

/// Converts a refusal to an error.
pub(super) fn refusal(lock: &str, reason: Reason, refused: pb::Refused) -> Error {
    let lock = lock.to_owned();
    let message = if refused.message.is_empty() {
        format!("the daemon refused lock {lock:?} ({reason:?})")
    } else {
        refused.message
    };
    let retry_after = refused.retry_after_ms.map(Duration::from_millis);
    match reason {
        Reason::Held | Reason::TimedOut => Error::NotGranted {
            lock,
            reason,
            message,
            holder: refused.holder.map(|holder| Box::new(holder.into())),
            held_for: refused.held_for_ms.map(Duration::from_millis),
            held_by_same_session: refused.held_by_same_session,
            retry_after,
        },
        Reason::Invalid => Error::Invalid { field: refused.field, message },
        Reason::DataLoss => Error::NeedsOperator { lock, message },
        Reason::ProtocolVersion | Reason::Protocol => Error::Incompatible { message },
        _ => Error::Unavailable { message, retry_after },
    }
}

impl From<pb::Queued> for Progress {
    fn from(queued: pb::Queued) -> Self {
        Self {
            position: queued.position,
            holder: queued.holder.map(Holder::from),
            held_for: queued.held_for_ms.map(Duration::from_millis),
            held_by_same_session: queued.held_by_same_session,
            note: queued.note,
        }
    }
}

/// Rounds up, so that a nonzero wait does not become zero, which means "no wait".
fn up_to_millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_acquire_names_lock_and_cause() {
        let message = |wait, namespace: &str, waited, cause| {
            let lock = pb::LockRef { namespace: namespace.into(), name: "orders".into() };
            let acquire = PendingAcquire::new(lock, wait, AcquireOptions::default(), None);
            acquire.unanswered(waited, cause).to_string()
        };
        let seconds = Duration::from_secs;
        let limited = Wait::AtMost(seconds(7));
        assert_eq!(
            message(limited, "default", Some(seconds(12)), Some("refused")),
            "timed out after 12s waiting for lock \"orders\": refused"
        );
        assert_eq!(
            message(limited, "shop", None, None),
            "timed out after 7s waiting for lock \"orders\" in namespace shop: no response from \
             the daemon"
        );
        assert_eq!(
            message(Wait::Not, "", Some(seconds(5)), None),
            "no response from the daemon within 5s"
        );
        assert_eq!(
            message(Wait::Not, "", Some(seconds(5)), Some("refused")),
            "can't acquire lock \"orders\": refused"
        );
    }

    fn acquire(wait: Wait, limit: Option<Moment>) -> PendingAcquire {
        let lock = pb::LockRef { namespace: "default".into(), name: "orders".into() };
        let options = AcquireOptions {
            max_hold_time: Some(Duration::from_secs(2)),
            lease_duration: Some(Duration::from_secs(15)),
            value: Value::new("host:1").ok(),
            trace: Some(Box::new(pb::TraceContext {
                parent: "00-1-2-01".into(),
                state: "a=1".into(),
            })),
        };
        PendingAcquire::new(lock, wait, options, limit)
    }

    #[test]
    fn acquire_sends_remaining_wait() {
        let start = Moment::from_boot(Duration::from_secs(100));
        let wait = Duration::from_secs(30);
        let waiting = acquire(Wait::AtMost(wait), Some(start + wait));
        let sent = |acquire: &PendingAcquire, after: u64| {
            acquire.message(1, start + Duration::from_micros(after)).wait_ms
        };
        assert_eq!(sent(&waiting, 0), Some(30_000));
        assert_eq!(sent(&waiting, 10_000_001), Some(20_000));
        assert_eq!(sent(&waiting, 29_999_999), Some(1));
        assert_eq!(sent(&waiting, 40_000_000), Some(0));
        assert_eq!(sent(&acquire(Wait::Not, Some(start)), 0), Some(0));
        assert_eq!(sent(&acquire(Wait::Forever, None), 0), None);
        assert_eq!(waiting.message(1, start).max_hold_time_ms, Some(2000));
        assert_eq!(waiting.message(1, start).lease_duration_ms, Some(15_000));
        assert_eq!(waiting.message(1, start).value.as_deref(), Some(&b"host:1"[..]));
        assert_eq!(waiting.message(1, start).trace_context, waiting.options.trace);
    }

    #[test]
    fn refusal_reason_selects_error() {
        let refused = |reason: pb::Reason| {
            let refused = pb::Refused {
                reason: reason.into(),
                message: "cause".into(),
                holder: Some(pb::Holder { client: "billing".into(), ..Default::default() }),
                held_for_ms: Some(1500),
                retry_after_ms: Some(20),
                field: "name".into(),
                held_by_same_session: true,
                ..Default::default()
            };
            acquire(Wait::Not, None).refusal(refused).expect("a request without a wait fails")
        };
        let retry_after = Some(Duration::from_millis(20));
        let message = || "cause".to_owned();
        for reason in [pb::Reason::Held, pb::Reason::TimedOut] {
            assert_eq!(
                refused(reason),
                Error::NotGranted {
                    lock: "orders".into(),
                    reason: leasehold_protocol::reason_from_wire(reason),
                    message: message(),
                    holder: Some(Box::new(Holder {
                        client: "billing".into(),
                        ..Holder::default()
                    })),
                    held_for: Some(Duration::from_millis(1500)),
                    held_by_same_session: true,
                    retry_after,
                }
            );
        }
        for reason in [
            pb::Reason::ShuttingDown,
            pb::Reason::StoreUnavailable,
            pb::Reason::Recovering,
            pb::Reason::Limit,
        ] {
            assert_eq!(refused(reason), Error::Unavailable { message: message(), retry_after });
        }
        let invalid = Error::Invalid { field: "name".into(), message: message() };
        assert_eq!(refused(pb::Reason::Invalid), invalid);
        let operator = Error::NeedsOperator { lock: "orders".into(), message: message() };
        assert_eq!(refused(pb::Reason::DataLoss), operator);
        let incompatible = Error::Incompatible { message: message() };
        assert_eq!(refused(pb::Reason::ProtocolVersion), incompatible);
    }

    #[test]
    fn shutdown_does_not_end_waiting_acquire() {
        let refused = pb::Refused { reason: pb::Reason::ShuttingDown.into(), ..Default::default() };
        assert_eq!(acquire(Wait::Forever, None).refusal(refused.clone()), None);
        assert_eq!(acquire(Wait::AtMost(Duration::from_secs(1)), None).refusal(refused), None);
    }
}

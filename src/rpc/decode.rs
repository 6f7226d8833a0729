//! Decodes messages into values that are valid by construction.

use std::{cmp, time::Duration};

use humantime::format_duration;

use super::{PROTOCOL_VERSIONS, pb};
use leasehold_core::{
    error::RequestError,
    lock::Handle,
    session::{MIN_HOLD_TIME, Open, Request, Secret, Settings},
};
use leasehold_store::{Breaker, LEASE_DURATIONS, MAX_VALUE_BYTES, Value};
use leasehold_types::{Holder, LockName, Reason, name::check_text};
use prost::bytes::Bytes;

/// Maximum length of an operator's name, and of the reason for a break, in bytes.
const MAX_REASON_BYTES: usize = 256;

/// First message of a stream.
pub(super) enum First {
    Open(Open),
    Resume(Secret, u64),
}

pub(super) fn first(
    message: pb::AttachRequest,
    settings: &Settings,
) -> Result<First, RequestError> {
    use pb::attach_request::Message;
    match message.message {
        Some(Message::Open(open)) => {
            version(open.protocol_version, open.min_protocol_version)?;
            let ttl = settings.ttl(Duration::from_millis(open.ttl_ms.into()))?;
            let holder = holder(open.holder.unwrap_or_default())?;
            Ok(First::Open(Open { ttl, holder, fenced: open.fenced }))
        }
        Some(Message::Resume(resume)) => {
            version(resume.protocol_version, resume.min_protocol_version)?;
            let secret = Secret::from_bytes(&resume.resume_secret).ok_or_else(|| {
                let bytes = resume.resume_secret.len();
                RequestError::invalid(
                    "resume_secret",
                    format_args!("has {bytes} bytes; it must have 16"),
                )
            })?;
            Ok(First::Resume(secret, resume.keep_alive_number))
        }
        _ => Err(RequestError::new(
            Reason::Protocol,
            "the first message of a stream must be `open` or `resume`",
        )),
    }
}

fn version(newest: u32, oldest: u32) -> Result<(), RequestError> {
    let oldest = if oldest == 0 { newest } else { oldest };
    let (ours_oldest, ours_newest) = (*PROTOCOL_VERSIONS.start(), *PROTOCOL_VERSIONS.end());
    if cmp::min(newest, ours_newest) < cmp::max(oldest, ours_oldest) {
        return Err(RequestError::new(
            Reason::ProtocolVersion,
            format!(
                "the client speaks versions {oldest} to {newest} of the protocol, this daemon \
                 ({}) {ours_oldest} to {ours_newest}: update the older of the two",
                env!("CARGO_PKG_VERSION")
            ),
        ));
    }
    Ok(())
}

fn holder(holder: pb::Holder) -> Result<Holder, RequestError> {
    let pb::Holder { client, host, pid, pod, labels } = holder;
    Ok(Holder::try_new(&client, &host, pid, &pod, labels)?)
}

/// Decodes a later message of a stream. An invalid request with a number is refused
/// under that number; any other invalid message ends the stream.
pub(super) fn request(message: pb::AttachRequest) -> Result<Request, RequestError> {
    use pb::attach_request::Message;
    match message.message {
        Some(Message::KeepAlive(pb::KeepAlive { keep_alive_number })) => {
            Ok(Request::KeepAlive { keep_alive_number })
        }
        Some(Message::Acquire(acquire)) => {
            let request = number(acquire.request)?;
            Ok(acquire_request(acquire).unwrap_or_else(|problem| Request::Malformed {
                request,
                problem: Box::new(problem),
            }))
        }
        Some(Message::Cancel(pb::Cancel { request })) => Ok(Request::Cancel { request }),
        Some(Message::Release(pb::Release { request, handle })) => {
            let request = number(request)?;
            Ok(match self::handle(&handle) {
                Ok(handle) => Request::Release { request, handle },
                Err(problem) => Request::Malformed { request, problem: Box::new(problem) },
            })
        }
        Some(Message::Proclaim(pb::Proclaim { request, handle, value })) => {
            let request = number(request)?;
            let proclaim = || {
                let handle = self::handle(&handle)?;
                Ok(Request::Proclaim { request, handle, value: self::value(value)? })
            };
            Ok(proclaim().unwrap_or_else(|problem: RequestError| Request::Malformed {
                request,
                problem: Box::new(problem),
            }))
        }
        Some(Message::Close(pb::Close {})) => Ok(Request::Close),
        Some(Message::Open(_) | Message::Resume(_)) => Err(RequestError::new(
            Reason::Protocol,
            "`open` and `resume` are allowed only as the first message of a stream",
        )),
        None => Err(RequestError::new(
            Reason::Protocol,
            "is empty, or of a kind that this daemon does not support",
        )),
    }
}

fn handle(bytes: &[u8]) -> Result<Handle, RequestError> {
    Handle::from_bytes(bytes).ok_or_else(|| {
        RequestError::invalid("handle", format_args!("has {} bytes; it must have 16", bytes.len()))
    })
}

fn value(bytes: Bytes) -> Result<Value, RequestError> {
    if bytes.len() > MAX_VALUE_BYTES {
        let problem =
            format_args!("has {} bytes; at most {MAX_VALUE_BYTES} are allowed", bytes.len());
        return Err(RequestError::invalid("value", problem));
    }
    Ok(Value::from(&*bytes))
}

fn number(request: u64) -> Result<u64, RequestError> {
    if request == 0 {
        return Err(RequestError::invalid("request", "is 0; requests are numbered from 1"));
    }
    Ok(request)
}

fn acquire_request(acquire: pb::Acquire) -> Result<Request, RequestError> {
    let max_hold_time = acquire.max_hold_time_ms.map(Duration::from_millis);
    if max_hold_time.is_some_and(|hold| hold < MIN_HOLD_TIME) {
        let [asked, min] = [max_hold_time.unwrap_or_default(), MIN_HOLD_TIME].map(format_duration);
        let problem = format_args!("{asked} is too short; the minimum is {min}");
        return Err(RequestError::invalid("max_hold_time_ms", problem));
    }
    let lease_duration = acquire.lease_duration_ms.map(|ms| Duration::from_millis(ms.into()));
    if let Some(asked) = lease_duration
        && (!LEASE_DURATIONS.contains(&asked) || asked.subsec_nanos() != 0)
    {
        let asked = format_duration(asked);
        let [min, max] = [LEASE_DURATIONS.start(), LEASE_DURATIONS.end()].map(Duration::as_secs);
        return Err(RequestError::invalid(
            "lease_duration_ms",
            format_args!("{asked} is out of range: use whole seconds from {min}s to {max}s"),
        ));
    }
    Ok(Request::Acquire {
        request: acquire.request,
        name: lock(acquire.lock)?,
        wait: acquire.wait_ms.map(Duration::from_millis),
        max_hold_time,
        lease_duration,
        value: acquire.value.map(value).transpose()?,
        trace: None,
    })
}

pub(super) fn lock(lock: Option<pb::LockRef>) -> Result<LockName, RequestError> {
    named("lock", lock)
}

pub(super) fn election(election: Option<pb::LockRef>) -> Result<LockName, RequestError> {
    named("election", election)
}

fn named(field: &'static str, lock: Option<pb::LockRef>) -> Result<LockName, RequestError> {
    let lock = lock.ok_or_else(|| RequestError::invalid(field, "is missing"))?;
    Ok(LockName::parse(&lock.namespace, &lock.name)?)
}

/// Decodes the operator and the reason of a break or step-down.
pub(super) fn breaker(by: String, reason: String) -> Result<Breaker, RequestError> {
    if reason.is_empty() {
        return Err(RequestError::invalid("reason", "is empty; a reason is required"));
    }
    check_text("reason", &reason, MAX_REASON_BYTES)?;
    check_text("by", &by, MAX_REASON_BYTES)?;
    let by = if by.is_empty() { "an operator".to_owned() } else { by };
    Ok(Breaker { by: by.into(), reason: reason.into() })
}

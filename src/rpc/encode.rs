//! Encodes values as messages.

use std::time::Duration;

use leasehold_protocol::reason_to_wire;

use super::{PROTOCOL_VERSIONS, pb};
use leasehold_core::{
    error::RequestError,
    lock::Handle,
    session::{HeldView, LockView, Message, Opened, Queued},
};
use leasehold_store::{Breaker, CallCount};
use leasehold_types::{Holder, LockName};

/// Returns whole milliseconds, rounded down: a validity must not become longer.
pub(super) const fn millis(length: Duration) -> u64 {
    length.as_millis() as u64
}

pub(super) fn message(message: Message) -> pb::AttachResponse {
    use pb::attach_response::Message as Out;
    let message = match message {
        Message::Opened(opened) => Out::Opened(self::opened(&opened)),
        Message::KeptAlive { keep_alive_number, valid_for, limits } => {
            Out::KeptAlive(kept_alive(keep_alive_number, valid_for, limits))
        }
        Message::Granted { request, token, handle, keep_alive_number, valid_for } => {
            Out::Granted(pb::Granted {
                request,
                token: token.get(),
                handle: handle.to_bytes().to_vec().into(),
                keep_alive_number,
                valid_for_ms: millis(valid_for),
            })
        }
        Message::Refused { request, problem } => Out::Refused(refused(request, *problem)),
        Message::Queued(queued) => {
            let Queued { request, position, holder, held_for, held_by_same_session, note } =
                *queued;
            Out::Queued(pb::Queued {
                request,
                position,
                holder: holder.as_deref().map(self::holder),
                held_for_ms: held_for.map(millis),
                note,
                held_by_same_session,
            })
        }
        Message::AtRisk { handle, reason, message, ends_in, operator } => Out::AtRisk(pb::AtRisk {
            handle: handle.to_bytes().to_vec().into(),
            reason: reason_to_wire(reason).into(),
            message: message.into(),
            ends_in_ms: millis(ends_in),
            operator: operator.map(|operator| breaker(*operator)),
        }),
        Message::Lost { handle, reason, message, operator } => Out::Lost(pb::Lost {
            handle: handle.to_bytes().to_vec().into(),
            reason: reason_to_wire(reason).into(),
            message: message.into(),
            operator: operator.map(|operator| breaker(*operator)),
        }),
        Message::Released { request } => Out::Released(pb::Released { request }),
        Message::Proclaimed { request } => Out::Proclaimed(pb::Proclaimed { request }),
        Message::Restored => Out::Restored(pb::Restored {}),
    };
    pb::AttachResponse { message: Some(message) }
}

fn kept_alive(
    keep_alive_number: u64,
    valid_for: Duration,
    limits: Vec<(Handle, Duration)>,
) -> pb::KeptAlive {
    pb::KeptAlive {
        keep_alive_number,
        valid_for_ms: millis(valid_for),
        limits: limits
            .into_iter()
            .map(|(handle, length)| pb::GrantLimit {
                handle: handle.to_bytes().to_vec().into(),
                valid_for_ms: millis(length),
            })
            .collect(),
    }
}

fn refused(request: u64, problem: RequestError) -> pb::Refused {
    pb::Refused {
        request,
        reason: reason_to_wire(problem.reason).into(),
        message: problem.message,
        holder: problem.holder.as_deref().map(holder),
        held_for_ms: problem.held_for.map(millis),
        retry_after_ms: problem.retry_after.map(millis),
        field: problem.field.unwrap_or_default().to_owned(),
        held_by_same_session: problem.held_by_same_session,
    }
}

fn opened(opened: &Opened) -> pb::Opened {
    pb::Opened {
        protocol_version: *PROTOCOL_VERSIONS.end(),
        daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        session_id: opened.id.to_string(),
        resume_secret: opened
            .secret
            .map(|secret| secret.to_bytes().to_vec().into())
            .unwrap_or_default(),
        ttl_ms: millis(opened.ttl) as u32,
        keep_alive_interval_ms: millis(opened.keep_alive_interval) as u32,
        valid_for_ms: millis(opened.valid_for),
        resumed: opened.secret.is_none(),
    }
}

pub(super) fn holder(holder: &Holder) -> pb::Holder {
    pb::Holder {
        client: holder.client().to_owned(),
        host: holder.host().to_owned(),
        pid: holder.pid(),
        pod: holder.pod().to_owned(),
        labels: holder.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    }
}

pub(super) fn lock_ref(name: &LockName) -> pb::LockRef {
    pb::LockRef { namespace: name.namespace().to_owned(), name: name.name().to_owned() }
}

pub(super) fn lock_info(view: &LockView) -> pb::LockInfo {
    let held = view.held.as_ref();
    pb::LockInfo {
        lock: Some(lock_ref(&view.name)),
        held: held.is_some(),
        holder: held.and_then(|held| held.holder.as_deref()).map(holder),
        session_id: held
            .and_then(|held| held.session)
            .map(|session| session.to_string())
            .unwrap_or_default(),
        token: held.and_then(|held| held.token).map(|token| token.get()),
        held_for_ms: held.and_then(|held| held.held_for).map(millis),
        waiting: view.waiting as u32,
        ending: held.is_some_and(|held| held.free_within.is_some()),
        daemon: held.and_then(daemon),
    }
}

fn daemon(held: &HeldView) -> Option<pb::DaemonInfo> {
    let endpoint = held.endpoint.as_deref();
    (held.daemon.is_some() || endpoint.is_some()).then(|| pb::DaemonInfo {
        description: held.daemon.as_deref().unwrap_or_default().to_owned(),
        endpoint: endpoint.map(|endpoint| endpoint.address.to_string()).unwrap_or_default(),
        host: endpoint.and_then(|at| at.host.as_deref()).unwrap_or_default().to_owned(),
    })
}

pub(super) fn election_state(view: &LockView) -> pb::ElectionState {
    let leader = view.leader().map(|held| pb::Leader {
        holder: held.holder.as_deref().map(holder),
        value: held.value.as_deref().unwrap_or_default().to_vec().into(),
        token: held.token.map(|token| token.get()),
        leading_for_ms: held.held_for.map(millis),
        local: held.session.is_some(),
        session_id: held.session.map(|session| session.to_string()).unwrap_or_default(),
        ending: held.free_within.is_some(),
        daemon: held.daemon.as_deref().unwrap_or_default().to_owned(),
        peer: daemon(held),
    });
    pb::ElectionState {
        election: Some(lock_ref(&view.name)),
        leader,
        candidates: view.waiting as u32,
    }
}

pub(super) fn calls(calls: &CallCount) -> pb::StorageCalls {
    let CallCount { operation, purpose, count } = *calls;
    pb::StorageCalls { operation: operation.to_owned(), purpose: purpose.to_owned(), count }
}

pub(super) fn breaker(breaker: Breaker) -> pb::BreakInfo {
    pb::BreakInfo { by: breaker.by.into(), reason: breaker.reason.into() }
}

//! Requests of a client on its stream.

use std::{sync::Arc, time::Duration};

use super::{Action, Message, Request, Session, Sessions, lifecycle::not_higher, numbers::Number};
use crate::{
    error::RequestError,
    journal::{Entry, Fact, RefusalCause, TraceKey},
    lock::{self, Handle, SessionKey, WaitLimit},
};
use leasehold_store::Value;
use leasehold_time::Moment;
use leasehold_types::{LockName, Reason};

impl Sessions {
    pub(super) fn request(
        &mut self,
        key: SessionKey,
        request: Request,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(is_repeat) = self.check_number(key, &request, now, out) else { return };
        match request {
            Request::KeepAlive { keep_alive_number } => {
                self.keep_alive(key, keep_alive_number, now, out)
            }
            Request::Acquire {
                request,
                name,
                wait,
                max_hold_time,
                lease_duration,
                value,
                trace,
            } => {
                let Some(session) = self.sessions.get(key.index()) else { return };
                let wait_limit = match wait {
                    None => WaitLimit::Forever,
                    Some(Duration::ZERO) => WaitLimit::None,
                    Some(wait) => WaitLimit::Until(now + wait),
                };
                let acquire = lock::Acquire {
                    name,
                    session: key,
                    holder: Arc::clone(&session.holder),
                    request,
                    wait_limit,
                    max_hold_time,
                    lease_duration,
                    value,
                    trace,
                };
                if is_repeat {
                    self.repeat_acquire(acquire, now, out);
                } else {
                    self.acquire(acquire, now, out);
                }
            }
            Request::Cancel { request } => self.cancel(key, request, now, out),
            Request::Release { request, handle } => self.release(key, request, handle, now, out),
            Request::Proclaim { request, handle, value } => {
                self.proclaim(key, request, handle, value, now, out);
            }
            Request::Close => self.end_session(key, None, now, out),
            Request::Malformed { request, problem } => self.refuse(key, request, *problem, out),
        }
    }

    /// Returns whether a request may repeat an earlier one. None if its number is
    /// invalid: then the stream ends.
    fn check_number(
        &mut self,
        key: SessionKey,
        request: &Request,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> Option<bool> {
        let Some(number) = number_of(request) else { return Some(false) };
        match self.sessions.get_mut(key.index())?.numbers.next(number) {
            Number::New => Some(false),
            Number::Repeated => Some(true),
            Number::NotHigher { than } => {
                if let Request::Acquire { name, trace, .. } = request {
                    ignore(name, *trace, out);
                }
                let problem = not_higher("request", number, than, "on this stream");
                self.fail_stream(key, problem, now, out);
                None
            }
        }
    }

    fn cancel(&mut self, key: SessionKey, request: u64, now: Moment, out: &mut Vec<Action>) {
        let session = self.sessions.get_mut(key.index());
        if let Some((lock, ticket)) = session.and_then(|session| session.waits.remove(&request)) {
            let problem = RequestError::new(Reason::Canceled, "the acquire was canceled");
            self.refuse(key, request, problem, out);
            self.locks(lock::Event::Leave(lock, ticket), now, out);
        }
    }

    fn release(
        &mut self,
        key: SessionKey,
        request: u64,
        handle: Handle,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let session = self.sessions.get_mut(key.index());
        match session.and_then(|session| session.forget_grant(handle)) {
            Some(lock) => {
                // The session no longer has the grant, so the release succeeds. The response
                // is sent before the lock handles the release, because the next grant may go
                // to a waiter of this session, and clients read messages in order.
                self.send(key, Message::Released { request }, out);
                self.locks(lock::Event::Free(lock, None), now, out);
            }
            None => {
                let problem = RequestError::new(
                    Reason::UnknownHandle,
                    "handle: no grant of this session has this handle: it was already \
                     released or lost, or belongs to another session; nothing was released",
                );
                self.refuse(key, request, problem, out);
            }
        }
    }

    fn proclaim(
        &mut self,
        key: SessionKey,
        request: u64,
        handle: Handle,
        value: Value,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let session = self.sessions.get(key.index());
        let held = session.and_then(|session| session.grants.get(&handle));
        match held.map(|held| held.lock).filter(|lock| self.locks.active_grant(*lock).is_some()) {
            Some(lock) => self.locks(lock::Event::Proclaim(lock, request, value), now, out),
            None => {
                let problem = RequestError::new(
                    Reason::UnknownHandle,
                    "handle: no active grant of this session has this handle: the session \
                     does not lead, or no longer leads; nothing was proclaimed",
                );
                self.refuse(key, request, problem, out);
            }
        }
    }

    pub(super) fn keep_alive(
        &mut self,
        key: SessionKey,
        keep_alive_number: u64,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        if keep_alive_number <= session.keep_alive_number {
            let problem = not_higher(
                "keep_alive_number",
                keep_alive_number,
                session.keep_alive_number,
                "of this session",
            );
            return self.fail_stream(key, problem, now, out);
        }
        session.keep_alive_number = keep_alive_number;
        session.last_keep_alive_at = now;
        let session = &self.sessions[key.index()];
        let waits: Vec<_> = session.waits.iter().map(|(request, wait)| (*request, *wait)).collect();
        self.send(key, self.kept_alive(session), out);
        for (request, (lock, ticket)) in waits {
            if let Some(position) = self.locks.take_position_change(lock, ticket) {
                let queued = self.queued(key, request, lock, position, now);
                self.send(key, queued, out);
            }
        }
    }

    /// Returns the response to the session's last keep-alive.
    pub(super) fn kept_alive(&self, session: &Session) -> Message {
        let valid_for = session.valid_for();
        let limited = session.grants.iter().filter(|(_, held)| held.limited);
        let limits = if session.limited == 0 {
            Vec::new()
        } else {
            limited
                .map(|(handle, held)| {
                    (*handle, session.grant_validity(self.locks.limit(held.lock)))
                })
                .filter(|(_, limited)| *limited < valid_for)
                .collect()
        };
        Message::KeptAlive { keep_alive_number: session.keep_alive_number, valid_for, limits }
    }

    pub(super) fn acquire(&mut self, acquire: lock::Acquire, now: Moment, out: &mut Vec<Action>) {
        let (key, request) = (acquire.session, acquire.request);
        let Some(session) = self.sessions.get(key.index()) else { return };
        let limit = self.settings.max_locks_per_session;
        if session.grants.len() + session.waits.len() >= limit {
            let name = &acquire.name;
            if self.locks.keeps_journal() {
                let fact = Fact::Refused { cause: RefusalCause::Limit, waited: Duration::ZERO };
                let holder = Some(Arc::clone(&acquire.holder));
                let entry = Entry { name: name.clone(), holder, trace: acquire.trace, fact };
                out.push(Action::Journal(entry));
            }
            let message = format!(
                "lock {name} refused: the session has reached max_locks_per_session ({limit})"
            );
            let problem = RequestError {
                lock: Some(acquire.name),
                ..RequestError::new(Reason::Limit, message)
            };
            return self.refuse(key, request, problem, out);
        }
        self.locks(lock::Event::Acquire(acquire), now, out);
    }

    /// Handles an acquire that may have been received on an earlier stream. If so, the
    /// response is its current state, and it does not compete a second time.
    fn repeat_acquire(&mut self, acquire: lock::Acquire, now: Moment, out: &mut Vec<Action>) {
        let (key, request) = (acquire.session, acquire.request);
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        let waiting = session.waits.get(&request).copied();
        let granted = session.numbers.grant(request, || {
            let grants = session.grants.values();
            let active = grants.filter_map(|held| {
                let grant = self.locks.active_grant(held.lock)?;
                Some((grant.request, held.lock))
            });
            active.collect()
        });
        // The grant may have been released on this stream.
        let granted = granted.filter(|lock| {
            let grant = self.locks.grant(*lock);
            grant.is_some_and(|grant| grant.session == key && grant.request == request)
        });
        let Some(lock) = waiting.map(|(lock, _)| lock).or(granted) else {
            return self.acquire(acquire, now, out);
        };
        ignore(&acquire.name, acquire.trace, out);
        if self.locks.name(lock) != Some(&acquire.name) {
            let message = format_args!("{request} is the number of an acquire of another lock");
            let problem = RequestError::violation("request", message);
            return self.fail_stream(key, problem, now, out);
        }
        if let Some((lock, ticket)) = waiting {
            if let Some(position) = self.locks.take_position(lock, ticket) {
                let queued = self.queued(key, request, lock, position, now);
                self.send(key, queued, out);
            }
        } else if let Some(granted) =
            self.sessions.get(key.index()).and_then(|session| self.granted(session, lock))
        {
            self.send(key, granted, out);
        }
    }
}

/// Ends the trace of an acquire that does not compete.
fn ignore(name: &LockName, trace: Option<TraceKey>, out: &mut Vec<Action>) {
    if trace.is_some() {
        let (name, fact) = (name.clone(), Fact::Ignored);
        out.push(Action::Journal(Entry { name, holder: None, trace, fact }));
    }
}

/// Returns the number of a request, which must increase.
const fn number_of(request: &Request) -> Option<u64> {
    match request {
        Request::Acquire { request, .. }
        | Request::Release { request, .. }
        | Request::Proclaim { request, .. }
        | Request::Malformed { request, .. } => Some(*request),
        Request::KeepAlive { .. } | Request::Cancel { .. } | Request::Close => None,
    }
}

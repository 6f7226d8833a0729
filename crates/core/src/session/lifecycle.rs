//! Lifecycle of sessions: open, resume, end of a stream, expiry, end; and shutdown of
//! the daemon.

use std::sync::Arc;

use super::{
    Action, ExpiredSession, Message, Open, Opened, RequestNumbers, Secret, Session, SessionId,
    Sessions, StreamId, wording,
};
use crate::{
    error::RequestError,
    lock::{self, Cause, LockId, SessionKey},
};
use leasehold_rules::ends_with_stream;
use leasehold_store::LEASE_DURATIONS;
use leasehold_time::{HashMap, Moment};
use leasehold_types::Reason;

impl Sessions {
    pub(super) fn tick(&mut self, now: Moment, out: &mut Vec<Action>) {
        let mut expired = Vec::new();
        while let Some(key) = self.schedule.pop(now) {
            let Some(session) = self.sessions.get_mut(key.index()) else { continue };
            session.armed = None;
            if session.deadline() <= now {
                expired.push(key);
            } else {
                if session.push_pending && session.next_push_at <= now {
                    self.push_keep_alive(key, now, out);
                }
                self.arm(key);
            }
        }
        // Remove all expired sessions from the queues first, so that none is granted a lock
        // that another one releases.
        for key in &expired {
            self.leave_queues(*key, now, out);
        }
        for key in expired {
            self.end_session(key, Some(Cause::Expired), now, out);
        }
        self.locks(lock::Event::Tick, now, out);
    }

    /// Sets the timer of a session. Keep-alives do not update the timer: when it fires
    /// before the current deadline, it is set again.
    pub(super) fn arm(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key.index()) {
            let due = session.due();
            self.schedule.rearm(key, &mut session.armed, Some(due));
        }
    }

    pub(super) fn open(
        &mut self,
        stream: StreamId,
        open: Open,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        if self.draining.is_some() {
            let problem = RequestError::new(Reason::ShuttingDown, "the daemon is shutting down");
            return out.push(Action::End(stream, Some(Box::new(problem))));
        }
        if self.sessions.len() >= self.settings.max_sessions {
            let limit = self.settings.max_sessions;
            let problem = RequestError {
                retry_after: Some(self.settings.default_ttl),
                ..RequestError::new(
                    Reason::Limit,
                    format!("session refused: the daemon has reached max_sessions ({limit})"),
                )
            };
            return out.push(Action::End(stream, Some(Box::new(problem))));
        }
        let session = Session {
            id: SessionId(self.entropy.bits() as u64),
            secret: Secret::new(self.entropy.bits()),
            ttl: open.ttl,
            holder: Arc::new(open.holder),
            fenced: open.fenced,
            stream: Some(stream),
            keep_alive_number: 0,
            last_keep_alive_at: now,
            grants: HashMap::default(),
            waits: HashMap::default(),
            numbers: RequestNumbers::default(),
            limited: 0,
            armed: None,
            next_push_at: now,
            push_pending: false,
        };
        let opened = self.opened(&session, Some(session.secret));
        let secret = session.secret;
        let key = SessionKey(self.sessions.insert(session) as u32);
        self.counts.opened += 1;
        self.secrets.insert(secret, key);
        self.bind(stream, Some(key));
        self.arm(key);
        out.push(Action::Send(stream, opened));
    }

    /// Sets the session that a stream carries. Returns the previous one.
    pub(super) fn bind(&mut self, stream: StreamId, key: Option<SessionKey>) -> Option<SessionKey> {
        let at = stream.0 as usize;
        if self.streams.len() <= at {
            self.streams.resize(at + 1, None);
        }
        std::mem::replace(&mut self.streams[at], key)
    }

    pub(super) fn opened(&self, session: &Session, secret: Option<Secret>) -> Message {
        Message::Opened(Box::new(Opened {
            id: session.id,
            secret,
            ttl: session.ttl,
            // The validity of a grant is limited by its lease. Keep-alives must be frequent
            // enough for the session and for the minimum lease duration.
            keep_alive_interval: session.ttl.min(*LEASE_DURATIONS.start()) / 3,
            valid_for: session.valid_for(),
        }))
    }

    pub(super) fn resume(
        &mut self,
        stream: StreamId,
        secret: Secret,
        keep_alive_number: u64,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.secrets.get(&secret).copied() else {
            let problem = RequestError::new(
                Reason::UnknownSession,
                "unknown session: it expired or was closed, or the daemon was restarted, and its \
                 grants are lost; open a new session",
            );
            return out.push(Action::End(stream, Some(Box::new(problem))));
        };
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        if keep_alive_number <= session.keep_alive_number {
            let last = session.keep_alive_number;
            let problem =
                not_higher("keep_alive_number", keep_alive_number, last, "of this session");
            return out.push(Action::End(stream, Some(Box::new(problem))));
        }
        session.keep_alive_number = keep_alive_number;
        session.last_keep_alive_at = now;
        session.numbers.resume();
        if let Some(old) = session.stream.replace(stream) {
            // Later messages on the old stream are ignored.
            self.bind(old, None);
            out.push(Action::Supersede(old));
        }
        self.bind(stream, Some(key));
        let session = &self.sessions[key.index()];
        out.push(Action::Send(stream, self.opened(session, None)));
        for held in session.grants.values() {
            if let Some(granted) = self.granted(session, held.lock) {
                out.push(Action::Send(stream, granted));
            }
        }
        let waits: Vec<_> = session.waits.iter().map(|(request, wait)| (*request, *wait)).collect();
        for (request, (lock, ticket)) in &waits {
            if let Some(position) = self.locks.take_position(*lock, *ticket) {
                let queued = self.queued(key, *request, *lock, position, now);
                out.push(Action::Send(stream, queued));
            }
        }
        out.push(Action::Send(stream, Message::Restored));
        self.warn_of_shutdown(&self.sessions[key.index()], now, out);
        self.warn_of_step_down(&self.sessions[key.index()], now, out);
        for (_, (lock, ticket)) in waits {
            self.locks(lock::Event::Connected(lock, ticket, true), now, out);
        }
    }

    /// Returns the response to the acquire that holds a lock, with the validity since the
    /// session's last keep-alive. None if its grant is lost.
    pub(super) fn granted(&self, session: &Session, lock: LockId) -> Option<Message> {
        let grant = self.locks.active_grant(lock)?;
        Some(Message::Granted {
            request: grant.request,
            token: grant.token,
            handle: grant.handle,
            keep_alive_number: session.keep_alive_number,
            valid_for: session.grant_validity(self.locks.limit(lock)),
        })
    }

    /// Ends the stream of a client that violates the protocol. The session continues, and
    /// expires unless the client resumes it.
    pub(super) fn fail_stream(
        &mut self,
        key: SessionKey,
        problem: RequestError,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let session = self.sessions.get(key.index());
        let Some(stream) = session.and_then(|session| session.stream) else { return };
        out.push(Action::End(stream, Some(Box::new(problem))));
        self.detached(stream, now, out);
    }

    pub(super) fn detached(&mut self, stream: StreamId, now: Moment, out: &mut Vec<Action>) {
        let Some(key) = self.bind(stream, None) else { return };
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        session.stream = None;
        if ends_with_stream(session.fenced) {
            return self.end_session(key, None, now, out);
        }
        let waits: Vec<_> = session.waits.values().copied().collect();
        for (lock, ticket) in waits {
            self.locks(lock::Event::Connected(lock, ticket, false), now, out);
        }
    }

    pub(super) fn drain(&mut self, until: Moment, now: Moment, out: &mut Vec<Action>) {
        self.draining = Some(until);
        self.locks(lock::Event::Drain, now, out);
        for (_, session) in &self.sessions {
            self.warn_of_shutdown(session, now, out);
        }
    }

    /// Asks a session with a stream to release its grants, if the daemon is shutting down.
    pub(super) fn warn_of_shutdown(&self, session: &Session, now: Moment, out: &mut Vec<Action>) {
        let (Some(stream), Some(until)) = (session.stream, self.draining) else { return };
        for held in session.grants.values() {
            if let Some(grant) = self.locks.active_grant(held.lock)
                && let Some(name) = self.locks.name(held.lock)
            {
                let message = wording::shutting_down(grant.handle, name, until.since(now));
                out.push(Action::Send(stream, message));
            }
        }
    }

    /// Repeats pending step-down requests to a session with a stream.
    fn warn_of_step_down(&self, session: &Session, now: Moment, out: &mut Vec<Action>) {
        let Some(stream) = session.stream else { return };
        for held in session.grants.values() {
            if let Some(grant) = self.locks.active_grant(held.lock)
                && let Some(until) = grant.hold_until
                && let Some(Cause::SteppedDown { by, reason }) = grant.end_cause.as_deref()
                && let Some(name) = self.locks.name(held.lock)
            {
                let ends_in = until.since(now);
                let message = wording::step_down_requested(grant.handle, name, by, reason, ends_in);
                out.push(Action::Send(stream, message));
            }
        }
    }

    pub(super) fn held(&self) -> Vec<LockId> {
        self.sessions
            .iter()
            .flat_map(|(_, session)| session.grants.values().map(|held| held.lock))
            .collect()
    }

    /// Ends a grant. The holder may act until the end of the validity that it was last
    /// sent.
    pub(super) fn end_grant(
        &mut self,
        lock: LockId,
        cause: Cause,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        if let Some(at) = self.latest_free_at(lock, now) {
            self.locks(lock::Event::End(lock, at, cause), now, out);
        }
    }

    /// Asks a holder to release the lock by `until`. Later validities end by then, too.
    pub(super) fn step_down(
        &mut self,
        lock: LockId,
        by: Box<str>,
        reason: Box<str>,
        until: Moment,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(grant) = self.locks.active_grant(lock) else {
            return;
        };
        let (key, handle) = (grant.session, grant.handle);
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        if let Some(held) = session.grants.get_mut(&handle)
            && !held.limited
        {
            held.limited = true;
            session.limited += 1;
        }
        if let Some(name) = self.locks.name(lock).cloned() {
            let message =
                wording::step_down_requested(handle, &name, &by, &reason, until.since(now));
            self.send(key, message, out);
        }
        let cause = Cause::SteppedDown { by, reason };
        self.locks(lock::Event::Limit(lock, until, cause), now, out);
    }

    pub(super) fn leave_queues(&mut self, key: SessionKey, now: Moment, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        for (lock, ticket) in std::mem::take(&mut session.waits).into_values() {
            self.locks(lock::Event::Leave(lock, ticket), now, out);
        }
    }

    /// Ends a session: removes its waiting acquires and frees its locks.
    pub(super) fn end_session(
        &mut self,
        key: SessionKey,
        cause: Option<Cause>,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        self.schedule.rearm(key, &mut session.armed, None);
        self.secrets.remove(&session.secret);
        self.leave_queues(key, now, out);
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        let grants = std::mem::take(&mut session.grants);
        self.counts.expired += u64::from(cause == Some(Cause::Expired));
        if cause == Some(Cause::Expired) && !grants.is_empty() {
            let locks = grants.values().filter_map(|held| self.locks.name(held.lock).cloned());
            let (id, holder, ttl) = (session.id, Arc::clone(&session.holder), session.ttl);
            let expired = ExpiredSession { id, holder, ttl, locks: locks.collect() };
            out.push(Action::Expired(Box::new(expired)));
        }
        for held in grants.into_values() {
            self.locks(lock::Event::Free(held.lock, cause.clone()), now, out);
        }
        let session = self.sessions.remove(key.index());
        if let Some(stream) = session.stream {
            self.bind(stream, None);
            let problem = cause.map(|_| {
                let ttl = humantime::format_duration(session.ttl);
                let message = format!("the session expired: no keep-alive within its TTL ({ttl})");
                Box::new(RequestError::new(Reason::Expired, message))
            });
            out.push(Action::End(stream, problem));
        }
    }
}

/// Returns the error for a keep-alive or request number that does not increase.
pub(super) fn not_higher(field: &'static str, number: u64, last: u64, of: &str) -> RequestError {
    RequestError::violation(
        field,
        format_args!("{number} is not higher than {last}, the last {of}"),
    )
}

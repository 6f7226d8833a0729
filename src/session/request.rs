//! What a client asks for on its stream.

use std::time::Duration;

use super::{Action, Message, Request, Session, Sessions};
use crate::{
    clock::Moment,
    error::{Problem, Reason},
    lock::{self, Patience, SessionKey},
    mutant::{self, Mutant},
};

/// More waits than this are not searched one by one.
const MANY_WAITS: usize = 64;

impl Sessions {
    pub(super) fn request(
        &mut self,
        key: SessionKey,
        request: Request,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        match request {
            Request::KeepAlive { ping } => self.keep_alive(key, ping, now, out),
            Request::Acquire { request, name, wait, longest_hold, lease_duration, value } => {
                let patience = match wait {
                    None => Patience::Forever,
                    Some(Duration::ZERO) => Patience::None,
                    Some(wait) => Patience::Until(now + wait),
                };
                let acquire = lock::Acquire {
                    name,
                    session: key,
                    request,
                    patience,
                    longest_hold,
                    lease_duration,
                    value,
                };
                self.acquire(acquire, now, out);
            }
            Request::Cancel { request } => {
                let session = self.sessions.get_mut(key.0 as usize);
                if let Some((lock, ticket)) =
                    session.and_then(|session| session.waits.remove(&request))
                {
                    let problem = Problem::new(Reason::Cancelled, "the acquire was cancelled");
                    self.refuse(key, request, problem, out);
                    self.locks(lock::Event::Leave(lock, ticket), now, out);
                }
            }
            Request::Release { request, handle } => {
                let session = self.sessions.get_mut(key.0 as usize);
                match session.and_then(|session| session.forget_grant(handle)) {
                    Some(lock) => {
                        #[cfg(feature = "simulation")]
                        self.remember_released(handle, lock);
                        self.send(key, Message::Released { request }, out);
                        self.locks(lock::Event::Free(lock), now, out);
                    }
                    #[cfg(feature = "simulation")]
                    None if mutant::is(Mutant::ReleaseByName) => {
                        self.release_by_name(handle, now, out);
                    }
                    None => {
                        let problem = Problem::new(
                            Reason::UnknownHandle,
                            "handle: names no grant of this session; it was released or lost \
                             before, or it is another session's. Nothing was released",
                        );
                        self.refuse(key, request, problem, out);
                    }
                }
            }
            Request::Proclaim { request, handle, value } => {
                let session = self.sessions.get(key.0 as usize);
                let lock = session.and_then(|session| session.grants.get(&handle));
                let lock = lock.map(|held| held.lock).filter(|lock| {
                    self.locks.grant(*lock).is_some_and(|grant| grant.ends_at.is_none())
                });
                match lock {
                    Some(lock) => {
                        self.locks(lock::Event::Proclaim(lock, request, value), now, out);
                    }
                    None => {
                        let problem = Problem::new(
                            Reason::UnknownHandle,
                            "handle: names no grant of this session that stands: it does not \
                             lead, or not any more. Nothing was proclaimed",
                        );
                        self.refuse(key, request, problem, out);
                    }
                }
            }
            Request::Close => self.end_session(key, None, now, out),
            Request::Malformed { request, problem } => self.refuse(key, request, *problem, out),
        }
    }

    pub(super) fn keep_alive(
        &mut self,
        key: SessionKey,
        ping: u64,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        if ping <= session.ping {
            return;
        }
        session.ping = ping;
        session.pinged_at = now;
        let session = &self.sessions[key.0 as usize];
        let waits: Vec<_> = session.waits.iter().map(|(request, wait)| (*request, *wait)).collect();
        self.send(key, self.kept_alive(session), out);
        for (request, (lock, ticket)) in waits {
            if let Some(position) = self.locks.position_news(lock, ticket, false) {
                let queued = self.queued(request, lock, position, now);
                self.send(key, queued, out);
            }
        }
    }

    /// What the session may count on since its last ping.
    pub(super) fn kept_alive(&self, session: &Session) -> Message {
        let valid_for = session.valid_for();
        let limited = session.grants.iter().filter(|(_, held)| held.limited);
        let limits = if session.limited == 0 || mutant::is(Mutant::LimitsLeftOut) {
            Vec::new()
        } else {
            limited
                .map(|(handle, held)| (*handle, session.valid_until(self.locks.limit(held.lock))))
                .filter(|(_, length)| *length < valid_for)
                .collect()
        };
        Message::KeptAlive { ping: session.ping, valid_for, limits }
    }

    pub(super) fn acquire(&mut self, acquire: lock::Acquire, now: Moment, out: &mut Vec<Action>) {
        let (key, request) = (acquire.session, acquire.request);
        let Some(session) = self.sessions.get(key.0 as usize) else { return };
        if session.waits.contains_key(&request) {
            let problem = Problem::invalid(
                "request",
                format_args!("{request} is the number of an acquire that is still waiting"),
            );
            return self.refuse(key, request, problem, out);
        }
        let lock = self.locks.find(&acquire.name);
        let holds = lock
            .and_then(|lock| self.locks.grant(lock))
            .is_some_and(|grant| grant.session == key && grant.ends_at.is_none());
        let most = self.settings.max_locks_per_session;
        if !holds && session.grants.len() + session.waits.len() >= most {
            let name = &acquire.name;
            let message = format!(
                "lock {name} refused: the session has reached max_locks_per_session ({most})"
            );
            let problem =
                Problem { lock: Some(acquire.name), ..Problem::new(Reason::Limit, message) };
            return self.refuse(key, request, problem, out);
        }
        // A session that waits for a great many is not searched: it may wait
        // for this one too.
        let again = lock.is_some_and(|lock| {
            self.locks.waiting(lock) > 0
                && (session.waits.len() > MANY_WAITS
                    || session.waits.values().any(|(other, _)| *other == lock))
        });
        self.locks(lock::Event::Acquire(acquire, again), now, out);
    }
}

/// What must never be done, for simulations that are to notice it.
#[cfg(feature = "simulation")]
impl Sessions {
    fn remember_released(&mut self, handle: lock::Handle, lock: lock::LockId) {
        if let Some(name) = self.locks.name(lock).filter(|_| mutant::is(Mutant::ReleaseByName)) {
            self.released.push((handle, name.clone()));
        }
    }

    /// A release that comes again frees whoever holds the lock by then (safety rule
    /// 12).
    fn release_by_name(&mut self, handle: lock::Handle, now: Moment, out: &mut Vec<Action>) {
        let named = self.released.iter().find(|(released, _)| *released == handle);
        if let Some(lock) = named.and_then(|(_, name)| self.locks.find(name)) {
            self.free_at_once(lock, now, out);
        }
    }

    /// Frees a lock although its holder may count on it.
    pub(super) fn free_at_once(&mut self, lock: lock::LockId, now: Moment, out: &mut Vec<Action>) {
        let Some(grant) = self.locks.grant(lock) else { return };
        let (session, handle) = (grant.session, grant.handle);
        if let Some(session) = self.sessions.get_mut(session.0 as usize) {
            session.forget_grant(handle);
        }
        self.locks(lock::Event::Free(lock), now, out);
    }
}

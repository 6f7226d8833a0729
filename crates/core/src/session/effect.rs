//! What comes of locks: bookkeeping, messages to clients, calls to the store.

use std::{sync::Arc, time::Duration};

use super::{Action, Held, Message, Sessions, StoreCall, view};
use crate::{
    error::Problem,
    lock::{self, Effect, LockId, SessionKey},
};
use leasehold_store::{Claim, Publication};
use leasehold_time::Moment;
use leasehold_types::Reason;

/// How long a session is told nothing unasked after it was told something.
const QUIET: Duration = Duration::from_millis(100);

/// How much room is kept for effects after a crowd has gone.
const KEPT: usize = 1024;

impl Sessions {
    /// Lets the locks act, and passes on what comes of it.
    pub(super) fn locks(&mut self, event: lock::Event, now: Moment, out: &mut Vec<Action>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.locks.on(event, now, &mut effects);
        for effect in effects.drain(..) {
            self.effect(effect, now, out);
        }
        effects.shrink_to(KEPT);
        self.effects = effects;
    }

    pub(super) fn effect(&mut self, effect: Effect, now: Moment, out: &mut Vec<Action>) {
        match effect {
            Effect::Waits { session, request, lock, ticket } => {
                if let Some(session) = self.sessions.get_mut(session.0 as usize) {
                    session.waits.insert(request, (lock, ticket));
                }
            }
            Effect::Queued { session, request, lock, position } => {
                let queued = self.queued(session, request, lock, position, now);
                self.send(session, queued, out);
            }
            Effect::Granted { session: key, request, lock, handle, token, limit } => {
                let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
                session.waits.remove(&request);
                let held = Held { lock, limited: limit.is_some() };
                if session.grants.insert(handle, held).is_none() {
                    session.limited += usize::from(held.limited);
                }
                let (ping, valid_for) = (session.ping, session.valid_until(limit));
                let granted = Message::Granted { request, token, handle, ping, valid_for };
                self.send(key, granted, out);
            }
            Effect::Refused { session: key, request, name, why } => {
                if let Some(session) = self.sessions.get_mut(key.0 as usize) {
                    session.waits.remove(&request);
                }
                let problem = self.refusal(key, name, why, now);
                self.refuse(key, request, problem, out);
            }
            Effect::AtRisk { session, handle, name, until } => {
                self.send(session, view::at_risk(handle, &name, until.since(now)), out);
            }
            Effect::OutOfRisk { session: key } => {
                let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
                if now < session.quiet_until {
                    session.untold = true;
                    self.arm(key);
                } else {
                    self.tell_unasked(key, now, out);
                }
            }
            Effect::Lost { session, handle, name, cause } => {
                self.send(session, view::lost(handle, &name, &cause), out);
            }
            Effect::Ended { session, handle } => {
                if let Some(session) = self.sessions.get_mut(session.0 as usize) {
                    session.forget_grant(handle);
                }
            }
            Effect::Proclaimed { session, request } => {
                self.send(session, Message::Proclaimed { request }, out);
            }
            Effect::NotProclaimed { session, request, too_many: false } => {
                let problem = Problem::new(
                    Reason::UnknownHandle,
                    "the lead was given up or lost before others could see the new value",
                );
                self.refuse(session, request, problem, out);
            }
            Effect::NotProclaimed { session, request, too_many: true } => {
                let problem = Problem::new(
                    Reason::Limit,
                    "too many values wait to be stored; wait for the answers",
                );
                self.refuse(session, request, problem, out);
            }
            Effect::Call { lock, call } => {
                if let Some(call) = self.store_call(lock, call, now) {
                    out.push(Action::Call(lock, call));
                }
            }
            Effect::Changed(name) => out.push(Action::Changed(name)),
        }
    }

    /// Tells a session what it may count on: without this it might not ask before
    /// the deadline that it knows. After an outage all that it holds is renewed
    /// within moments, and each such message may list all of it.
    pub(super) fn tell_unasked(&mut self, key: SessionKey, now: Moment, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        session.untold = false;
        session.quiet_until = now + QUIET;
        let session = &self.sessions[key.0 as usize];
        self.send(key, self.kept_alive(session), out);
    }

    pub(super) fn store_call(
        &self,
        lock: LockId,
        call: lock::Call,
        now: Moment,
    ) -> Option<StoreCall> {
        let name = self.locks.name(lock)?.clone();
        Some(match call {
            lock::Call::Acquire { id, session, duration, again, value } => {
                let holder = Arc::clone(&self.sessions.get(session.0 as usize)?.holder);
                StoreCall::Acquire(Claim { name, id, duration, holder, value, again })
            }
            lock::Call::NextTokens { id } => StoreCall::NextTokens(name, id),
            lock::Call::Renew { id, duration } => StoreCall::Renew(name, id, duration),
            lock::Call::Release { id } => StoreCall::Release(name, id),
            lock::Call::Publish { id, session, token, since, value } => {
                let holder = Arc::clone(&self.sessions.get(session.0 as usize)?.holder);
                let held_for = now.since(since);
                StoreCall::Publish(name, id, Publication { holder, token, held_for, value })
            }
        })
    }

    pub(super) fn refuse(
        &self,
        key: SessionKey,
        request: u64,
        problem: Problem,
        out: &mut Vec<Action>,
    ) {
        self.send(key, Message::Refused { request, problem: Box::new(problem) }, out);
    }

    /// To a session without a stream nothing is said: it learns on resuming.
    pub(super) fn send(&self, key: SessionKey, message: Message, out: &mut Vec<Action>) {
        let stream = self.sessions.get(key.0 as usize).and_then(|session| session.stream);
        if let Some(stream) = stream {
            out.push(Action::Send(stream, message));
        }
    }
}

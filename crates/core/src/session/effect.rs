//! Effects of locks: session state, messages to clients, calls to the store.

use std::time::Duration;

use super::{Action, Held, Message, Sessions, wording};
use crate::{
    error::RequestError,
    lock::{self, Effect, Locks, SessionKey},
};
use leasehold_time::Moment;

/// Minimum time between two unsolicited keep-alives of a session.
const MIN_PUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Capacity to which the list of effects is shrunk after a burst.
const EFFECTS_CAPACITY: usize = 1024;

impl Sessions {
    /// Passes an event to the locks and handles its effects.
    pub(super) fn locks(&mut self, event: lock::Event, now: Moment, out: &mut Vec<Action>) {
        self.with_locks(now, out, |locks, effects| locks.on(event, now, effects));
    }

    pub(super) fn with_locks(
        &mut self,
        now: Moment,
        out: &mut Vec<Action>,
        act: impl FnOnce(&mut Locks, &mut Vec<Effect>),
    ) {
        let mut effects = std::mem::take(&mut self.effects);
        act(&mut self.locks, &mut effects);
        for effect in effects.drain(..) {
            self.effect(effect, now, out);
        }
        effects.shrink_to(EFFECTS_CAPACITY);
        self.effects = effects;
    }

    fn effect(&mut self, effect: Effect, now: Moment, out: &mut Vec<Action>) {
        match effect {
            Effect::Joined { session, request, lock, ticket } => {
                if let Some(session) = self.sessions.get_mut(session.index()) {
                    session.waits.insert(request, (lock, ticket));
                }
            }
            Effect::Queued { session, request, lock, position } => {
                let queued = self.queued(session, request, lock, position, now);
                self.send(session, queued, out);
            }
            Effect::Granted { session: key, request, lock, handle, token, limit } => {
                let Some(session) = self.sessions.get_mut(key.index()) else { return };
                session.waits.remove(&request);
                let held = Held { lock, limited: limit.is_some() };
                if session.grants.insert(handle, held).is_none() {
                    session.limited += usize::from(held.limited);
                }
                let (keep_alive_number, valid_for) =
                    (session.keep_alive_number, session.grant_validity(limit));
                let granted =
                    Message::Granted { request, token, handle, keep_alive_number, valid_for };
                self.send(key, granted, out);
            }
            Effect::Refused { session: key, request, name, why } => {
                if let Some(session) = self.sessions.get_mut(key.index()) {
                    session.waits.remove(&request);
                }
                let problem = self.refusal(key, name, why, now);
                self.refuse(key, request, problem, out);
            }
            Effect::AtRisk { session, handle, name, until } => {
                self.send(session, wording::at_risk(handle, &name, until.since(now)), out);
            }
            Effect::OutOfRisk { session } => self.on_out_of_risk(session, now, out),
            Effect::Lost { session, handle, name, cause } => {
                self.send(session, wording::lost(handle, &name, &cause), out);
            }
            Effect::Ended { session, handle } => {
                if let Some(session) = self.sessions.get_mut(session.index()) {
                    session.forget_grant(handle);
                }
            }
            Effect::Proclaimed { session, request } => {
                self.send(session, Message::Proclaimed { request }, out);
            }
            Effect::NotProclaimed { session, request, too_many } => {
                self.refuse(session, request, wording::not_proclaimed(too_many), out);
            }
            Effect::Call(lock, call) => out.push(Action::Call(lock, call)),
            Effect::Journal(entry) => out.push(Action::Journal(entry)),
            Effect::Changed(name) => out.push(Action::Changed(name)),
        }
    }

    /// Sends an unsolicited keep-alive now, or at the earliest time for the next one.
    fn on_out_of_risk(&mut self, key: SessionKey, now: Moment, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        if now < session.next_push_at {
            session.push_pending = true;
            self.arm(key);
        } else {
            self.push_keep_alive(key, now, out);
        }
    }

    /// Sends an unsolicited keep-alive, because the client might not send one before the
    /// deadline that it knows. Renewals are batched: after an outage, all leases of a
    /// session are renewed almost at once, and each message can list all its grants.
    pub(super) fn push_keep_alive(&mut self, key: SessionKey, now: Moment, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(key.index()) else { return };
        session.push_pending = false;
        session.next_push_at = now + MIN_PUSH_INTERVAL;
        let session = &self.sessions[key.index()];
        self.send(key, self.kept_alive(session), out);
    }

    pub(super) fn refuse(
        &self,
        key: SessionKey,
        request: u64,
        problem: RequestError,
        out: &mut Vec<Action>,
    ) {
        self.send(key, Message::Refused { request, problem: Box::new(problem) }, out);
    }

    /// Drops the message if the session has no stream. The client receives the
    /// current state when it resumes.
    pub(super) fn send(&self, key: SessionKey, message: Message, out: &mut Vec<Action>) {
        let stream = self.sessions.get(key.index()).and_then(|session| session.stream);
        if let Some(stream) = stream {
            out.push(Action::Send(stream, message));
        }
    }
}

//! Sessions: who is alive, and what each holds and waits for. Pure: told what
//! happened and when, it says what to do.
//!
//! A session lives for its ttl after the last keep-alive that arrived. What its
//! client is promised is a little shorter and counts from when the client sent
//! that keep-alive, so that the client always stops before the session expires
//! (safety rule 11).

mod effect;
mod event;
mod lifecycle;
mod message;
mod numbers;
mod request;
mod settings;
#[cfg(feature = "simulation")]
mod simulation;
mod view;
mod wording;

use std::{sync::Arc, time::Duration};

pub use event::{Action, Event, ExpiredSession, Open, Request, SessionId, StreamId};
pub use message::{Message, Opened, Queued, Secret};
use numbers::RequestNumbers;
pub use settings::{MIN_HOLD_TIME, MIN_TTL, Settings};
use slab::Slab;
pub use view::{HeldView, LockView};

use crate::{
    lock::{self, Blocker, Cause, Effect, Handle, LockId, Locks, SessionKey, Ticket},
    schedule::Schedule,
};
use leasehold_rules::{free_at, session_validity};
use leasehold_store::Page;
use leasehold_time::{Entropy, HashMap, Moment};
use leasehold_types::{Holder, LockName};

#[derive(Debug)]
struct Session {
    id: SessionId,
    secret: Secret,
    ttl: Duration,
    holder: Arc<Holder>,
    fenced: bool,
    /// None while the stream is broken.
    stream: Option<StreamId>,
    /// The last keep-alive, and when it arrived.
    keep_alive_number: u64,
    pinged_at: Moment,
    grants: HashMap<Handle, Held>,
    waits: HashMap<u64, (LockId, Ticket)>,
    numbers: RequestNumbers,
    /// How many of the grants may end before the session does.
    limited: usize,
    /// When the schedule looks at this session: not after its deadline.
    armed: Option<Moment>,
    /// Earliest time of the next unsolicited keep-alive: all renewals until then are
    /// batched.
    next_push_at: Moment,
    /// There is something to tell it then.
    push_pending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    lock: LockId,
    /// Whether it may end before the session does.
    limited: bool,
}

impl Session {
    /// When it expires unless another keep-alive arrives.
    fn deadline(&self) -> Moment {
        self.pinged_at + self.ttl
    }

    /// When there is something to be done for it.
    fn due(&self) -> Moment {
        let deadline = self.deadline();
        if self.push_pending { deadline.min(self.next_push_at) } else { deadline }
    }

    /// How long its client may count on it, from when it sent the last keep-alive.
    fn valid_for(&self) -> Duration {
        self.valid_until(None)
    }

    /// The same for a grant with a limit of its own. The keep-alive was sent before
    /// it arrived, and clocks may drift: so what counts from its sending ends
    /// before the limit.
    fn valid_until(&self, limit: Option<Moment>) -> Duration {
        let length = limit.map_or(self.ttl, |limit| limit.since(self.pinged_at).min(self.ttl));
        session_validity(length)
    }

    fn forget_grant(&mut self, handle: Handle) -> Option<LockId> {
        let held = self.grants.remove(&handle)?;
        self.limited -= usize::from(held.limited);
        Some(held.lock)
    }
}

/// All sessions of this daemon, on top of its locks.
#[derive(Debug)]
pub struct Sessions {
    settings: Settings,
    sessions: Slab<Session>,
    secrets: HashMap<Secret, SessionKey>,
    /// By stream: numbers that are used again, so few.
    streams: Vec<Option<SessionKey>>,
    locks: Locks,
    schedule: Schedule<SessionKey>,
    entropy: Entropy,
    /// Set once the daemon stops: when holders must have let go.
    draining: Option<Moment>,
    /// Kept to be used again.
    effects: Vec<Effect>,
}

impl Sessions {
    /// No sessions.
    pub fn new(settings: Settings, locks: lock::Settings, mut entropy: Entropy) -> Self {
        let for_locks = Entropy::seeded_by(&mut entropy);
        Self {
            settings,
            sessions: Slab::new(),
            secrets: HashMap::default(),
            streams: Vec::new(),
            locks: Locks::new(locks, for_locks),
            schedule: Schedule::default(),
            entropy,
            draining: None,
            effects: Vec::new(),
        }
    }

    /// Something happened. What has fallen due by now comes first, so that
    /// nothing is granted or kept alive on a deadline that has passed (safety
    /// rule 5).
    pub fn on(&mut self, event: Event, now: Moment, out: &mut Vec<Action>) {
        // What is due next may depend on it.
        if let Event::ClockJumped(by) = event {
            self.with_locks(now, out, |locks, effects| locks.clock_jumped(by, now, effects));
        }
        if self.next_due().is_some_and(|due| due <= now) {
            self.tick(now, out);
        }
        match event {
            Event::Open(stream, open) => self.open(stream, *open, now, out),
            Event::Resume(stream, secret, keep_alive_number) => {
                self.resume(stream, secret, keep_alive_number, now, out)
            }
            Event::Request(stream, request) => {
                // Without a session, the stream has been told so already.
                if let Some(Some(key)) = self.streams.get(stream.0 as usize) {
                    self.request(*key, request, now, out);
                }
            }
            Event::Detached(stream) => self.detached(stream, now, out),
            Event::Break { name, by, reason } => {
                if let Some(lock) = self.locks.find(&name) {
                    self.end_grant(lock, Cause::Broken { by, reason }, now, out);
                }
            }
            Event::StepDown { name, by, reason, until } => {
                if let Some(lock) = self.locks.find(&name) {
                    self.step_down(lock, by, reason, until, now, out);
                }
            }
            Event::Answered(lock, id, answer) => {
                self.with_locks(now, out, |locks, effects| {
                    locks.answered(lock, id, answer, now, effects);
                });
            }
            Event::Drain(until) => self.drain(until, now, out),
            Event::EndDrain => {
                for lock in self.held() {
                    self.end_grant(lock, Cause::ShuttingDown, now, out);
                }
            }
            Event::ClockJumped(_) | Event::Tick => {}
        }
    }

    /// When [`Event::Tick`] must come next.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        match (self.schedule.next(), self.locks.next_due()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whether nothing is held, waited for or asked of the store.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.locks.is_empty()
    }

    /// Locks of a page that have waiters while their lease is unavailable, in
    /// order. The store does not list them.
    #[must_use]
    pub fn blocked(&self, page: &Page) -> Vec<LockName> {
        self.locks.blocked(page)
    }

    /// Whether this daemon has the lease of a lock.
    #[must_use]
    pub fn is_ours(&self, name: &LockName) -> bool {
        self.locks.find(name).is_some_and(|lock| self.locks.is_ours(lock))
    }

    /// Whether this daemon knows who holds a lock without being asked: its own
    /// session, or one that it waits for.
    #[must_use]
    pub fn knows(&self, name: &LockName) -> bool {
        self.is_ours(name) || self.held_elsewhere(name).is_some()
    }

    /// Token of the grant that a session of this daemon has, active or ending.
    #[must_use]
    pub fn granted_token(&self, name: &LockName) -> Option<leasehold_types::Token> {
        Some(self.locks.grant(self.locks.find(name)?)?.token)
    }

    /// Who holds a lock through another daemon, if a session waits for it.
    #[must_use]
    pub fn held_elsewhere(&self, name: &LockName) -> Option<&Arc<leasehold_store::LeaseInfo>> {
        match self.locks.blocker(self.locks.find(name)?)? {
            Blocker::HeldByPeer { by } => by.as_ref(),
            Blocker::StoreError(_) => None,
        }
    }

    /// How many sessions there are, and how many locks.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.sessions.len(), self.locks.len())
    }

    /// When a holder that is asked to let go must have, if it is given this
    /// long: not before what it was promised. None if no session of this daemon
    /// holds the lock.
    #[must_use]
    pub fn step_down_by(&self, name: &LockName, within: Duration, now: Moment) -> Option<Moment> {
        let lock = self.locks.find(name)?;
        let grant = self.locks.active_grant(lock)?;
        let until = self.free_by(lock, now)?.max(now + within);
        // It ends by itself before, if it was asked before or has a longest hold.
        Some(grant.hold_until.map_or(until, |hold_until| until.min(hold_until)))
    }

    /// When the lock is free at the latest if its grant is ended now.
    fn free_by(&self, lock: LockId, now: Moment) -> Option<Moment> {
        let grant = self.locks.grant(lock)?;
        let session = self.sessions.get(grant.session.index())?;
        let at = grant.ends_at.unwrap_or_else(|| session.deadline());
        let at = self.locks.promised_until(lock).map_or(at, |until| until.min(at));
        Some(free_at(now, at))
    }
}

#[cfg(test)]
mod tests;

//! Sessions: liveness of clients, and the grants and waiting acquires of each.
//! Sans-IO: [`Sessions::on`] takes an event and a time and appends [`Action`]s.
//!
//! A session expires when its TTL has passed after the arrival of its last
//! keep-alive. The validity that its client receives is slightly shorter and counts
//! from the sending of that keep-alive, so that the client always stops before the
//! session expires (safety rule 11).

mod effect;
mod event;
mod explain;
mod lifecycle;
mod message;
mod numbers;
mod request;
mod search;
mod settings;
#[cfg(feature = "simulation")]
mod simulation;
mod survey;
mod view;
mod wording;

use std::{sync::Arc, time::Duration};

pub use event::{Action, Event, ExpiredSession, Open, Request, SessionId, StreamId};
pub use explain::{Diagnosis, Explanation, GrantView, WaiterView};
pub use message::{Message, Opened, Queued, Secret};
use numbers::RequestNumbers;
pub use search::{LockFilter, LockKind, Search};
pub use settings::{MIN_HOLD_TIME, MIN_TTL, Settings};
use slab::Slab;
pub use survey::{LockSummary, Survey};
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
    /// Number of the last keep-alive.
    keep_alive_number: u64,
    /// Arrival of the last keep-alive.
    last_keep_alive_at: Moment,
    grants: HashMap<Handle, Held>,
    waits: HashMap<u64, (LockId, Ticket)>,
    numbers: RequestNumbers,
    /// Number of grants that may end before the session.
    limited: usize,
    /// Timer of the session, as set in the schedule; never after its deadline.
    armed: Option<Moment>,
    /// Earliest time of the next unsolicited keep-alive. Renewals before that are batched
    /// into it.
    next_push_at: Moment,
    /// True if an unsolicited keep-alive is scheduled for that time.
    push_pending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    lock: LockId,
    /// True if the grant may end before the session.
    limited: bool,
}

impl Session {
    /// Returns the time at which the session expires without another keep-alive.
    fn deadline(&self) -> Moment {
        self.last_keep_alive_at + self.ttl
    }

    /// Returns the time of the session's next timer.
    fn due(&self) -> Moment {
        let deadline = self.deadline();
        if self.push_pending { deadline.min(self.next_push_at) } else { deadline }
    }

    /// Returns the validity of the session, from the sending of its last keep-alive.
    fn valid_for(&self) -> Duration {
        self.grant_validity(None)
    }

    /// Returns the validity of a grant that ends at `limit`. The client counts the validity
    /// from the sending of the last keep-alive. It therefore ends before the limit: the
    /// duration is computed from the arrival of that keep-alive, and is shortened by the
    /// possible clock drift.
    fn grant_validity(&self, limit: Option<Moment>) -> Duration {
        let duration =
            limit.map_or(self.ttl, |limit| limit.since(self.last_keep_alive_at).min(self.ttl));
        session_validity(duration)
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
    /// Session of each stream, by the number of the stream. Numbers are reused.
    streams: Vec<Option<SessionKey>>,
    locks: Locks,
    schedule: Schedule<SessionKey>,
    entropy: Entropy,
    /// Time by which holders must release. Set when the daemon shuts down.
    draining: Option<Moment>,
    /// Empty list for reuse.
    effects: Vec<Effect>,
    counts: SessionCounts,
}

/// Numbers of sessions since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Sessions that were opened.
    pub opened: u64,
    /// Sessions that expired.
    pub expired: u64,
}

impl Sessions {
    /// Creates an empty table of sessions and locks.
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
            counts: SessionCounts::default(),
        }
    }

    /// Handles an event and appends its actions. Timers that are due run first, so that
    /// no grant and no keep-alive response relies on a deadline that has passed (safety
    /// rule 5).
    pub fn on(&mut self, event: Event, now: Moment, out: &mut Vec<Action>) {
        // A clock jump can bring timers forward.
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
                // A stream without a session has received an error before.
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

    /// Returns the time of the next [`Event::Tick`].
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        match (self.schedule.next(), self.locks.next_due()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Returns the trace of the acquire for which a lock calls the store.
    #[must_use]
    pub fn trace(&self, lock: LockId) -> Option<crate::journal::TraceKey> {
        self.locks.trace(lock)
    }

    /// Returns whether no lock has a holder, a waiter or a pending call.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.locks.is_empty()
    }

    /// Returns the locks of a page that have waiters while their lease is unavailable, in
    /// order. The store does not list them.
    #[must_use]
    pub fn blocked(&self, page: &Page) -> Vec<LockName> {
        self.locks.blocked(page)
    }

    /// Returns whether this daemon has the lease of a lock.
    #[must_use]
    pub fn has_lease(&self, name: &LockName) -> bool {
        self.locks.find(name).is_some_and(|lock| self.locks.has_lease(lock))
    }

    /// Returns whether this daemon knows the holder of a lock without reading the store:
    /// it has the lease, or one of its sessions waits for a lease that a peer holds.
    #[must_use]
    pub fn knows_holder(&self, name: &LockName) -> bool {
        self.has_lease(name) || self.peer_lease(name).is_some()
    }

    /// Returns the token of the grant that a session of this daemon has, active or ending.
    #[must_use]
    pub fn granted_token(&self, name: &LockName) -> Option<leasehold_types::Token> {
        Some(self.locks.grant(self.locks.find(name)?)?.token)
    }

    /// Returns the lease that a peer holds, if a session of this daemon waits for it.
    #[must_use]
    pub fn peer_lease(&self, name: &LockName) -> Option<&Arc<leasehold_store::LeaseInfo>> {
        match self.locks.blocker(self.locks.find(name)?)? {
            Blocker::HeldByPeer { by } => by.as_ref(),
            Blocker::StoreError(_) => None,
        }
    }

    /// Returns the numbers of sessions and of locks.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.sessions.len(), self.locks.len())
    }

    /// Returns the numbers of sessions since the daemon started.
    #[must_use]
    pub const fn session_counts(&self) -> SessionCounts {
        self.counts
    }

    /// Returns the time by which a holder that is asked to step down within `within` must
    /// release the lock. Never earlier than the end of the validity last sent to the
    /// holder. None if no session of this daemon holds the lock.
    #[must_use]
    pub fn step_down_deadline(
        &self,
        name: &LockName,
        within: Duration,
        now: Moment,
    ) -> Option<Moment> {
        let lock = self.locks.find(name)?;
        let grant = self.locks.active_grant(lock)?;
        let until = self.latest_free_at(lock, now)?.max(now + within);
        // An earlier step-down request or a maximum hold time can end the grant before.
        Some(grant.hold_until.map_or(until, |hold_until| until.min(hold_until)))
    }

    /// Returns the latest time at which the lock is free, if its grant is ended now.
    fn latest_free_at(&self, lock: LockId, now: Moment) -> Option<Moment> {
        let grant = self.locks.grant(lock)?;
        let session = self.sessions.get(grant.session.index())?;
        let at = grant.ends_at.unwrap_or_else(|| session.deadline());
        let at = self.locks.holder_acts_until(lock).map_or(at, |until| until.min(at));
        Some(free_at(now, at))
    }
}

#[cfg(test)]
mod tests;

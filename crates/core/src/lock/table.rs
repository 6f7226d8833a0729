//! Table of locks: passes each event to its lock, and maintains timers and indexes.

use std::{collections::BTreeSet, time::Duration};

use leasehold_store::{LeaseId, Page, StoreAnswer};
use leasehold_time::{Entropy, HashMap, Moment};
use leasehold_types::LockName;
use slab::Slab;

use super::{
    Acquire, Effect, Event, Refusal, Settings,
    grant::{Grant, LockId},
    lease::Blocker,
    queue::{Queue, Ticket, Waiter},
    state::Lock,
};
use crate::{
    journal::{Entry, Fact, TraceKey},
    schedule::Schedule,
};

/// Context of an event, as passed to a lock.
pub(super) struct Cx<'a> {
    pub(super) lock: LockId,
    pub(super) now: Moment,
    pub(super) entropy: &'a mut Entropy,
    pub(super) settings: &'a Settings,
    pub(super) schedule: &'a mut Schedule<Due>,
    /// Empty queue for reuse.
    pub(super) spare: &'a mut Option<Box<Queue>>,
    pub(super) out: &'a mut Vec<Effect>,
}

/// Key of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Lock(LockId),
    Wait(LockId, Ticket),
}

/// Locks that have a holder, a waiter or a pending call.
#[derive(Debug)]
pub struct Locks {
    locks: Slab<Lock>,
    names: HashMap<LockName, LockId>,
    /// Locks with waiters while their lease is unavailable.
    blocked: BTreeSet<LockName>,
    schedule: Schedule<Due>,
    settings: Settings,
    entropy: Entropy,
    tickets: u64,
    draining: bool,
    spare: Option<Box<Queue>>,
}

impl Locks {
    /// Creates an empty table.
    #[must_use]
    pub fn new(settings: Settings, entropy: Entropy) -> Self {
        #[cfg(feature = "simulation")]
        let mut entropy = entropy;
        // Preserves the random numbers of existing simulation seeds.
        #[cfg(feature = "simulation")]
        let _ = entropy.bits();
        Self {
            locks: Slab::new(),
            names: HashMap::default(),
            blocked: BTreeSet::new(),
            schedule: Schedule::default(),
            settings,
            entropy,
            tickets: 0,
            draining: false,
            spare: None,
        }
    }

    /// Handles an event and appends its effects.
    pub fn on(&mut self, event: Event, now: Moment, out: &mut Vec<Effect>) {
        match event {
            Event::Acquire(acquire) => self.acquire(acquire, now, out),
            Event::Leave(lock, ticket) => {
                self.with(lock, now, out, |lock, cx| lock.leave(ticket, cx));
            }
            Event::Connected(lock, ticket, connected) => {
                self.with(lock, now, out, |lock, cx| lock.set_connected(ticket, connected, cx));
            }
            Event::Free(lock, cause) => {
                self.with(lock, now, out, |lock, cx| lock.free(cause, cx));
            }
            Event::End(lock, at, cause) => {
                self.with(lock, now, out, |lock, cx| lock.end(at, cause, cx));
            }
            Event::Limit(lock, at, cause) => {
                self.with(lock, now, out, |lock, cx| lock.limit_grant(at, cause, cx));
            }
            Event::Proclaim(lock, request, value) => {
                self.with(lock, now, out, |lock, cx| lock.proclaim(request, value, cx));
            }
            Event::Drain => {
                self.draining = true;
                self.settings.linger = Duration::ZERO;
                self.with_all(now, out, |lock, cx| lock.refuse_all(Refusal::ShuttingDown, cx));
            }
            Event::Tick => {
                while let Some(due) = self.schedule.pop(now) {
                    match due {
                        Due::Lock(lock) => self.with(lock, now, out, |lock, cx| {
                            lock.armed = None;
                            lock.tick(cx);
                        }),
                        Due::Wait(lock, ticket) => {
                            self.with(lock, now, out, |lock, cx| lock.time_out(ticket, cx));
                        }
                    }
                }
            }
        }
    }

    /// Handles the store's answer to a call for this lease.
    pub fn answered(
        &mut self,
        lock: LockId,
        id: LeaseId,
        answer: StoreAnswer,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        self.with(lock, now, out, |lock, cx| lock.answered(id, answer, cx));
    }

    /// Subtracts a clock jump from the validity of all leases.
    pub fn clock_jumped(&mut self, by: Duration, now: Moment, out: &mut Vec<Effect>) {
        self.with_all(now, out, |lock, cx| lock.clock_jumped(by, cx));
    }

    /// Returns the time of the next [`Event::Tick`].
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.schedule.next()
    }

    /// Returns the lock with this name, if it has a holder, a waiter or a pending call.
    #[must_use]
    pub fn find(&self, name: &LockName) -> Option<LockId> {
        self.names.get(name).copied()
    }

    /// Returns the trace of the last acquire for which the lease was acquired or used.
    #[must_use]
    pub fn trace(&self, lock: LockId) -> Option<TraceKey> {
        self.get(lock)?.trace
    }

    /// Returns the name of a lock.
    #[must_use]
    pub fn name(&self, lock: LockId) -> Option<&LockName> {
        self.get(lock).map(|lock| &lock.name)
    }

    /// Returns the grant, active or ending.
    #[must_use]
    pub fn grant(&self, lock: LockId) -> Option<&Grant> {
        self.get(lock)?.grant()
    }

    /// Returns the grant unless it is lost.
    #[must_use]
    pub fn active_grant(&self, lock: LockId) -> Option<&Grant> {
        self.grant(lock).filter(|grant| grant.is_active())
    }

    /// Returns the time at which the grant ends even if its session continues.
    #[must_use]
    pub fn limit(&self, lock: LockId) -> Option<Moment> {
        self.get(lock)?.limit()
    }

    /// Returns the latest time until which the holder may act.
    #[must_use]
    pub fn holder_acts_until(&self, lock: LockId) -> Option<Moment> {
        self.get(lock)?.holder_acts_until()
    }

    /// Returns the number of waiters.
    #[must_use]
    pub fn waiting(&self, lock: LockId) -> usize {
        self.get(lock).map_or(0, Lock::waiting)
    }

    /// Returns the reason why the lease can't be acquired now.
    #[must_use]
    pub fn blocker(&self, lock: LockId) -> Option<&Blocker> {
        self.get(lock)?.blocker()
    }

    /// Returns a waiter's position, which counts as sent to its client.
    pub fn take_position(&mut self, lock: LockId, ticket: Ticket) -> Option<u32> {
        self.locks.get_mut(lock.index())?.take_position(ticket).map(|(position, _)| position)
    }

    /// Returns a waiter's position, if it differs from the one that its client was sent.
    pub fn take_position_change(&mut self, lock: LockId, ticket: Ticket) -> Option<u32> {
        let taken = self.locks.get_mut(lock.index())?.take_position(ticket);
        taken.filter(|(_, changed)| *changed).map(|(position, _)| position)
    }

    /// Returns whether this daemon holds the lease. False while the acquire call is
    /// pending.
    #[must_use]
    pub fn has_lease(&self, lock: LockId) -> bool {
        self.get(lock).is_some_and(Lock::has_lease)
    }

    /// Returns the locks of a page that have waiters while their lease is unavailable, in
    /// order.
    #[must_use]
    pub fn blocked(&self, page: &Page) -> Vec<LockName> {
        page.names(|range| self.blocked.range(range).next().cloned())
    }

    /// Returns whether facts are appended to the journal.
    #[must_use]
    pub const fn keeps_journal(&self) -> bool {
        self.settings.journal.is_on()
    }

    /// Returns the number of locks in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Returns the number of places of the table, used or not.
    pub(super) fn capacity(&self) -> usize {
        self.locks.capacity()
    }

    /// Returns whether no lock has a holder, a waiter or a pending call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    fn acquire(&mut self, acquire: Acquire, now: Moment, out: &mut Vec<Effect>) {
        let Acquire {
            name,
            session,
            holder,
            request,
            wait_limit,
            max_hold_time,
            lease_duration,
            value,
            trace,
        } = acquire;
        let found = self.find(&name);
        let refusal = if self.draining {
            Some(Refusal::ShuttingDown)
        } else if found.is_none() && self.locks.len() >= self.settings.max_locks {
            let limit = self.settings.max_locks;
            Some(Refusal::Limit(format!("max_locks ({limit})")))
        } else if found.is_some_and(|id| self.waiting(id) >= self.settings.max_waiters_per_lock) {
            let limit = self.settings.max_waiters_per_lock;
            Some(Refusal::Limit(format!("max_waiters_per_lock ({limit})")))
        } else {
            None
        };
        if let Some(why) = refusal {
            if self.settings.journal.is_on() {
                let fact = Fact::Refused { cause: (&why).into(), waited: Duration::ZERO };
                let entry = Entry { name: name.clone(), holder: Some(holder), trace, fact };
                out.push(Effect::Journal(entry));
            }
            out.push(Effect::Refused { session, request, name, why });
            return;
        }
        let id = found.unwrap_or_else(|| LockId(self.locks.vacant_key() as u32));
        if found.is_none() {
            self.locks.insert(Lock::new(name.clone()));
            self.names.insert(name, id);
        }
        self.tickets += 1;
        let waiter = Waiter {
            ticket: Ticket(self.tickets),
            session,
            holder,
            request,
            wait_limit,
            max_hold_time,
            lease_duration: lease_duration.unwrap_or(self.settings.lease_duration),
            value,
            connected: true,
            last_sent_position: 0,
            armed: None,
            since: now,
            trace,
        };
        self.with(id, now, out, |lock, cx| lock.join(waiter, cx));
    }

    pub(super) fn get(&self, lock: LockId) -> Option<&Lock> {
        self.locks.get(lock.index())
    }

    /// Applies `act` to a lock, then updates its timer and the indexes, and removes the
    /// lock if it is idle.
    fn with(
        &mut self,
        id: LockId,
        now: Moment,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Lock, &mut Cx<'_>),
    ) {
        let Some(lock) = self.locks.get_mut(id.index()) else { return };
        let before = lock.visible_state();
        let was_blocked = lock.is_blocked();
        let mut cx = Cx {
            lock: id,
            now,
            entropy: &mut self.entropy,
            settings: &self.settings,
            schedule: &mut self.schedule,
            spare: &mut self.spare,
            out,
        };
        act(lock, &mut cx);
        if before != lock.visible_state() {
            out.push(Effect::Changed(lock.name.clone()));
        }
        match (was_blocked, lock.is_blocked()) {
            (false, true) => _ = self.blocked.insert(lock.name.clone()),
            (true, false) => _ = self.blocked.remove(&lock.name),
            _ => {}
        }
        let idle = lock.is_idle();
        let due = if idle { None } else { lock.due() };
        self.schedule.rearm(Due::Lock(id), &mut lock.armed, due);
        if idle {
            let lock = self.locks.remove(id.index());
            self.names.remove(&lock.name);
        }
    }

    fn with_all(
        &mut self,
        now: Moment,
        out: &mut Vec<Effect>,
        act: impl Fn(&mut Lock, &mut Cx<'_>),
    ) {
        let ids: Vec<_> = self.locks.iter().map(|(id, _)| LockId(id as u32)).collect();
        for id in ids {
            self.with(id, now, out, &act);
        }
    }
}

//! All locks of this daemon: who holds them, who waits. Pure: told what
//! happened and when, it says what to do.
//!
//! Nothing here knows streams, storage or clocks. Sessions are numbers; what a
//! session must be told, and what the store must be asked, comes out as
//! [`Effect`]s.

mod grant;
mod publish;
mod queue;
mod renew;
#[cfg(feature = "simulation")]
mod simulation;
mod state;

use std::{collections::BTreeSet, time::Duration};

// Its hasher is fast, and seeded at random for each table.

pub use grant::{Cause, Grant, Handle, LockId, SessionKey};
pub use queue::{Patience, Ticket};
use queue::{Queue, Waiter};
use slab::Slab;
use state::Lock;
pub use state::Obstacle;

use crate::schedule::Schedule;
use leasehold_store as lease;
use leasehold_store::{LeaseId, Page, Value};
use leasehold_time::{Entropy, HashMap, Moment};
use leasehold_types::{LockName, Token};

/// What locks must know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a lease lasts without a renewal, where leases expire and
    /// nobody asks for another length.
    pub lease_duration: Duration,
    /// How long a lease that expires is kept after the last local holder has
    /// let go, in case another comes.
    pub linger: Duration,
    /// The longest wait before a lease that another daemon holds is asked for
    /// again.
    pub poll_interval: Duration,
    /// How many locks may be held or waited for.
    pub max_locks: usize,
    /// How many may wait for one lock.
    pub max_waiters_per_lock: usize,
}

/// A request for a lock.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The lock.
    pub name: LockName,
    /// Who asks.
    pub session: SessionKey,
    /// The session's number for this request.
    pub request: u64,
    /// How long it waits.
    pub patience: Patience,
    /// The longest hold that it asks for.
    pub longest_hold: Option<Duration>,
    /// The duration of the lease, if it must be acquired for this one.
    pub lease_duration: Option<Duration>,
    /// What it shows once it holds the lock, if it campaigns.
    pub value: Option<Value>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A session requests a lock. Every acquire competes on its own, also with
    /// other acquires of its session.
    Acquire(Acquire),
    /// A waiter gives up, or its session has ended. It is not answered.
    Leave(LockId, Ticket),
    /// A waiter's session has lost its stream, or has one again.
    Present(LockId, Ticket, bool),
    /// The holder lets go, or its session has ended.
    Free(LockId),
    /// The grant must end, at the latest at that moment.
    End(LockId, Moment, Cause),
    /// The grant must end by itself at that moment, which must not be before
    /// what the holder was promised; otherwise it is lost for this cause.
    Limit(LockId, Moment, Cause),
    /// The holder shows another value; its session's number for this request.
    Proclaim(LockId, u64, Value),
    /// The daemon stops: whoever waits is refused, now and from now on.
    Drain,
    /// The store answered.
    Answered(LockId, LeaseId, Answer),
    /// The wall clock has run ahead of ours by this much.
    Leapt(Duration),
    /// Time has passed.
    Tick,
}

/// What the store answered.
#[derive(Debug)]
pub enum Answer {
    /// To [`Call::Acquire`].
    Acquire(Result<lease::Acquire, lease::Error>),
    /// To [`Call::NextTokens`].
    NextTokens(Result<lease::Acquire, lease::Error>),
    /// To [`Call::Renew`].
    Renew(Result<lease::Renew, lease::Error>),
    /// To [`Call::Release`].
    Release(Result<lease::Release, lease::Error>),
    /// To [`Call::Publish`].
    Publish(Result<lease::Publish, lease::Error>),
}

/// What to ask the store. Each is answered with an [`Event::Answered`].
#[derive(Clone, Debug)]
pub enum Call {
    /// Acquire the lease, on behalf of a session.
    Acquire {
        /// Fresh.
        id: LeaseId,
        /// The first in the queue.
        session: SessionKey,
        /// How long the lease lasts.
        duration: Duration,
        /// Whether it was asked for before, in vain.
        again: bool,
        /// What is shown to others, if it is a campaign.
        value: Option<Value>,
    },
    /// Get more tokens.
    NextTokens {
        /// The hold.
        id: LeaseId,
    },
    /// Renew the lease.
    Renew {
        /// The hold.
        id: LeaseId,
        /// How long the lease lasts.
        duration: Duration,
    },
    /// Release the lease.
    Release {
        /// The hold.
        id: LeaseId,
    },
    /// Show others who holds the lock.
    Publish {
        /// The hold.
        id: LeaseId,
        /// Who.
        session: SessionKey,
        /// Its token.
        token: Token,
        /// Since when.
        since: Moment,
        /// What it shows, if it leads.
        value: Option<Value>,
    },
}

/// Why an acquire is refused.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Another acquire holds the lock, and this one does not wait.
    Held,
    /// It has waited long enough; for this, if the lease was not to be had.
    TimedOut(Option<Obstacle>),
    /// The lease is not to be had.
    Obstacle(Obstacle),
    /// The daemon stops.
    ShuttingDown,
    /// A limit is reached.
    Limit(String),
}

/// What to do.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are what their types say")]
pub enum Effect {
    /// An acquire has joined the queue, perhaps only for a moment.
    Waits { session: SessionKey, request: u64, lock: LockId, ticket: Ticket },
    /// A waiter is not served at once: tell it where it stands.
    Queued { session: SessionKey, request: u64, lock: LockId, position: u32 },
    /// An acquire has succeeded.
    Granted {
        session: SessionKey,
        request: u64,
        lock: LockId,
        handle: Handle,
        token: Token,
        /// When the grant ends whatever its session does.
        limit: Option<Moment>,
    },
    /// An acquire has failed.
    Refused { session: SessionKey, request: u64, name: LockName, why: Refusal },
    /// A grant will be lost at `until` unless its lease can be renewed.
    AtRisk { session: SessionKey, handle: Handle, name: LockName, until: Moment },
    /// What put a grant of this session at risk is over.
    OutOfRisk { session: SessionKey },
    /// A grant is lost. Its holder may be at work until [`Effect::Ended`].
    Lost { session: SessionKey, handle: Handle, name: LockName, cause: Cause },
    /// A lost grant is over.
    Ended { session: SessionKey, handle: Handle },
    /// Others can see what was proclaimed.
    Proclaimed { session: SessionKey, request: u64 },
    /// The lock was lost or given up before others could, or too many wait for
    /// that already.
    NotProclaimed { session: SessionKey, request: u64, too_many: bool },
    /// Ask the store.
    Call { lock: LockId, call: Call },
    /// A lock's state, as seen from outside, may have changed.
    Changed(LockName),
}

/// What a lock's own code is given along with each event.
struct Cx<'a> {
    lock: LockId,
    now: Moment,
    entropy: &'a mut Entropy,
    settings: &'a Settings,
    schedule: &'a mut Schedule<Due>,
    /// An empty queue, to be used again.
    spare: &'a mut Option<Box<Queue>>,
    out: &'a mut Vec<Effect>,
}

/// What can fall due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Lock(LockId),
    Wait(LockId, Ticket),
}

/// The locks that are held or waited for.
#[derive(Debug)]
pub struct Locks {
    locks: Slab<Lock>,
    names: HashMap<LockName, LockId>,
    /// Those that are waited for while their lease is not to be had.
    stranded: BTreeSet<LockName>,
    schedule: Schedule<Due>,
    settings: Settings,
    entropy: Entropy,
    tickets: u64,
    draining: bool,
    spare: Option<Box<Queue>>,
}

impl Locks {
    /// No locks.
    #[must_use]
    pub fn new(settings: Settings, entropy: Entropy) -> Self {
        #[cfg(feature = "simulation")]
        let mut entropy = entropy;
        #[cfg(feature = "simulation")]
        let _ = entropy.bits();
        Self {
            locks: Slab::new(),
            names: HashMap::default(),
            stranded: BTreeSet::new(),
            schedule: Schedule::default(),
            settings,
            entropy,
            tickets: 0,
            draining: false,
            spare: None,
        }
    }

    /// Something happened.
    pub fn on(&mut self, event: Event, now: Moment, out: &mut Vec<Effect>) {
        match event {
            Event::Acquire(acquire) => self.acquire(acquire, now, out),
            Event::Leave(lock, ticket) => self.with(lock, now, out, |lock, cx| {
                lock.leave(ticket, cx);
            }),
            Event::Present(lock, ticket, present) => {
                self.with(lock, now, out, |lock, cx| lock.set_present(ticket, present, cx));
            }
            Event::Free(lock) => self.with(lock, now, out, |lock, cx| {
                lock.free(cx);
            }),
            Event::End(lock, at, cause) => {
                self.with(lock, now, out, |lock, cx| lock.end(at, cause, cx));
            }
            Event::Limit(lock, at, cause) => {
                self.with(lock, now, out, |lock, _| lock.limit_grant(at, cause));
            }
            Event::Proclaim(lock, request, value) => {
                self.with(lock, now, out, |lock, cx| lock.proclaim(request, value, cx));
            }
            Event::Drain => {
                self.draining = true;
                self.settings.linger = Duration::ZERO;
                self.with_all(now, out, |lock, cx| lock.refuse_all(Refusal::ShuttingDown, cx));
            }
            Event::Answered(lock, id, answer) => {
                self.with(lock, now, out, |lock, cx| lock.answered(id, answer, cx));
            }
            Event::Leapt(by) => self.with_all(now, out, |lock, cx| lock.leapt(by, cx)),
            Event::Tick => {
                while let Some(due) = self.schedule.pop(now) {
                    match due {
                        Due::Lock(lock) => self.with(lock, now, out, |lock, cx| {
                            lock.armed = None;
                            lock.tick(cx);
                        }),
                        Due::Wait(lock, ticket) => {
                            self.with(lock, now, out, |lock, cx| lock.give_up(ticket, cx));
                        }
                    }
                }
            }
        }
    }

    /// When [`Event::Tick`] must come next.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.schedule.next()
    }

    /// Finds a lock that is held or waited for.
    #[must_use]
    pub fn find(&self, name: &LockName) -> Option<LockId> {
        self.names.get(name).copied()
    }

    /// The name, while the lock is held or waited for.
    #[must_use]
    pub fn name(&self, lock: LockId) -> Option<&LockName> {
        self.get(lock).map(|lock| &lock.name)
    }

    /// The grant that stands or is ending.
    #[must_use]
    pub fn grant(&self, lock: LockId) -> Option<&Grant> {
        self.get(lock)?.grant()
    }

    /// When the grant ends whatever its session does.
    #[must_use]
    pub fn limit(&self, lock: LockId) -> Option<Moment> {
        self.get(lock)?.limit()
    }

    /// Until when its holder may count on the grant at the most.
    #[must_use]
    pub fn promised_until(&self, lock: LockId) -> Option<Moment> {
        self.get(lock)?.promised_until()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self, lock: LockId) -> usize {
        self.get(lock).map_or(0, Lock::waiting)
    }

    /// Why the lease is not to be had, if so.
    #[must_use]
    pub fn obstacle(&self, lock: LockId) -> Option<&Obstacle> {
        self.get(lock)?.obstacle()
    }

    /// A waiter's position, if that has changed since it was last told; counts
    /// as telling it. With `anyway`, even if it has not changed.
    pub fn position_news(&mut self, lock: LockId, ticket: Ticket, anyway: bool) -> Option<u32> {
        let lock = self.locks.get_mut(lock.0 as usize)?;
        if anyway {
            lock.forget_told(ticket);
        }
        lock.position_news(ticket)
    }

    /// Whether the lease is ours; while it is only asked for, it is not.
    #[must_use]
    pub fn is_ours(&self, lock: LockId) -> bool {
        self.get(lock).is_some_and(Lock::is_ours)
    }

    /// Locks of a page that have waiters while their lease is unavailable, in
    /// order.
    #[must_use]
    pub fn stranded(&self, page: &Page) -> Vec<LockName> {
        page.names(|range| self.stranded.range(range).next().cloned())
    }

    /// How many locks are held or waited for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether no lock is held or waited for, and no call is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    fn acquire(&mut self, acquire: Acquire, now: Moment, out: &mut Vec<Effect>) {
        let Acquire { name, session, request, patience, longest_hold, lease_duration, value } =
            acquire;
        let found = self.find(&name);
        let refusal = if self.draining {
            Some(Refusal::ShuttingDown)
        } else if found.is_none() && self.locks.len() >= self.settings.max_locks {
            let most = self.settings.max_locks;
            Some(Refusal::Limit(format!("max_locks ({most})")))
        } else if found.is_some_and(|id| self.waiting(id) >= self.settings.max_waiters_per_lock) {
            let most = self.settings.max_waiters_per_lock;
            Some(Refusal::Limit(format!("max_waiters_per_lock ({most})")))
        } else {
            None
        };
        if let Some(why) = refusal {
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
            request,
            patience,
            longest_hold,
            lease_duration: lease_duration.unwrap_or(self.settings.lease_duration),
            value,
            present: true,
            told: 0,
            armed: None,
        };
        self.with(id, now, out, |lock, cx| lock.join(waiter, cx));
    }

    fn get(&self, lock: LockId) -> Option<&Lock> {
        self.locks.get(lock.0 as usize)
    }

    /// Lets one lock act, then sees to its timer, and forgets it once it is
    /// neither held nor waited for.
    fn with(
        &mut self,
        id: LockId,
        now: Moment,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Lock, &mut Cx<'_>),
    ) {
        let Some(lock) = self.locks.get_mut(id.0 as usize) else { return };
        let before = lock.shown();
        let was_stranded = lock.is_stranded();
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
        if before != lock.shown() {
            out.push(Effect::Changed(lock.name.clone()));
        }
        match (was_stranded, lock.is_stranded()) {
            (false, true) => _ = self.stranded.insert(lock.name.clone()),
            (true, false) => _ = self.stranded.remove(&lock.name),
            _ => {}
        }
        let idle = lock.is_idle();
        let due = if idle { None } else { lock.due() };
        self.schedule.rearm(Due::Lock(id), &mut lock.armed, due);
        if idle {
            let lock = self.locks.remove(id.0 as usize);
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

//! State of locks that is visible to clients and operators.

use std::{sync::Arc, time::Duration};

use super::{Message, Queued, SessionId, Sessions};
use crate::lock::{Blocker, LockId, SessionKey};
use leasehold_store::{Endpoint, LeaseInfo, Value};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Token, TokenRange};

/// Current state of a lock, as known to this daemon.
#[derive(Clone, Debug)]
pub struct LockView {
    /// Name of the lock.
    pub name: LockName,
    /// Holder. None if the lock is not held.
    pub held: Option<HeldView>,
    /// Number of waiters at this daemon.
    pub waiting: usize,
}

impl LockView {
    /// Returns the leader, if the lock is used as an election. A holder at another daemon
    /// leads once its description is stored.
    #[must_use]
    pub fn leader(&self) -> Option<&HeldView> {
        self.held.as_ref().filter(|held| held.session.is_some() || held.holder.is_some())
    }
}

/// A lock's holder.
#[derive(Clone, Debug, Default)]
pub struct HeldView {
    /// Description of the holder, if known.
    pub holder: Option<Arc<Holder>>,
    /// Session of the holder, if it is a session of this daemon.
    pub session: Option<SessionId>,
    /// Token of the holder, if known.
    pub token: Option<Token>,
    /// Token range of the hold, if another daemon has the lease. Contains the holder's
    /// token.
    pub token_range: Option<TokenRange>,
    /// Time since the lock was granted to the holder, if known.
    pub held_for: Option<Duration>,
    /// Maximum time until the lock is free. Set once the grant is lost.
    pub free_within: Option<Duration>,
    /// Value that the holder publishes, if it leads.
    pub value: Option<Value>,
    /// Description of the daemon that has the lease. None if it is this daemon, or
    /// unknown.
    pub daemon: Option<Arc<str>>,
    /// Address of that daemon, if known.
    pub endpoint: Option<Arc<Endpoint>>,
}

impl HeldView {
    /// Creates the view of a holder at a peer, from the peer's record.
    #[must_use]
    pub fn from_peer(info: &LeaseInfo) -> Self {
        Self {
            holder: info.holder.clone(),
            session: None,
            token: info.leader,
            token_range: info.tokens,
            held_for: info.held_for,
            free_within: None,
            value: info.value.clone(),
            daemon: info.daemon.clone(),
            endpoint: info.endpoint.clone(),
        }
    }
}

impl Sessions {
    /// Returns the current state of a lock.
    #[must_use]
    pub fn view(&self, name: &LockName, now: Moment) -> LockView {
        let lock = self.locks.find(name);
        LockView {
            name: name.clone(),
            held: lock.and_then(|lock| self.held_view(lock, now)),
            waiting: lock.map_or(0, |lock| self.locks.waiting(lock)),
        }
    }

    /// Returns the maximum time until the lock is free, if it is broken now. None if no
    /// session of this daemon holds it.
    #[must_use]
    pub fn free_within(&self, name: &LockName, now: Moment) -> Option<Duration> {
        self.latest_free_at(self.locks.find(name)?, now).map(|at| at.since(now))
    }

    pub(super) fn held_view(&self, lock: LockId, now: Moment) -> Option<HeldView> {
        if let Some(grant) = self.locks.grant(lock) {
            return Some(HeldView {
                holder: Some(Arc::clone(&grant.holder)),
                session: self.sessions.get(grant.session.index()).map(|session| session.id),
                token: Some(grant.token),
                token_range: None,
                held_for: Some(now.since(grant.since)),
                free_within: grant.ends_at.map(|at| at.since(now)),
                value: grant.value.clone(),
                daemon: None,
                endpoint: None,
            });
        }
        peer_view(self.locks.blocker(lock)?)
    }

    /// Returns whether an acquire of this session holds the lock.
    pub(super) fn is_held_by(&self, session: SessionKey, lock: LockId) -> bool {
        self.locks.grant(lock).is_some_and(|grant| grant.session == session)
    }

    pub(super) fn queued(
        &self,
        session: SessionKey,
        request: u64,
        lock: LockId,
        position: u32,
        now: Moment,
    ) -> Message {
        let held = self.held_view(lock, now);
        let note = match self.locks.blocker(lock) {
            Some(Blocker::StoreError(error)) => error.to_string(),
            _ => String::new(),
        };
        Message::Queued(Box::new(Queued {
            request,
            position,
            holder: held.as_ref().and_then(|held| held.holder.clone()),
            held_for: held.and_then(|held| held.held_for),
            held_by_same_session: self.is_held_by(session, lock),
            note,
        }))
    }
}

/// Returns the holder at a peer that blocks the lease, if there is one.
pub(super) fn peer_view(blocker: &Blocker) -> Option<HeldView> {
    match blocker {
        Blocker::HeldByPeer { by } => {
            Some(by.as_deref().map(HeldView::from_peer).unwrap_or_default())
        }
        Blocker::StoreError(_) => None,
    }
}

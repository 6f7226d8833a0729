//! Locks as clients and operators see them.

use std::{sync::Arc, time::Duration};

use super::{Message, Queued, SessionId, Sessions};
use crate::lock::{Blocker, LockId, SessionKey};
use leasehold_store::{Endpoint, LeaseInfo, Value};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Token, TokenRange};

/// A lock as it is now, as far as this daemon knows.
#[derive(Clone, Debug)]
pub struct LockView {
    /// The lock.
    pub name: LockName,
    /// Its holder.
    pub held: Option<HeldView>,
    /// How many wait for it here.
    pub waiting: usize,
}

impl LockView {
    /// Who leads, if it is an election. Whoever has just leased a lock at another
    /// daemon does not before it has said who it is.
    #[must_use]
    pub fn leader(&self) -> Option<&HeldView> {
        self.held.as_ref().filter(|held| held.session.is_some() || held.holder.is_some())
    }
}

/// A lock's holder.
#[derive(Clone, Debug, Default)]
pub struct HeldView {
    /// Who, as far as it is known.
    pub holder: Option<Arc<Holder>>,
    /// The session, if it is one of this daemon's.
    pub session: Option<SessionId>,
    /// The token, if it is known.
    pub token: Option<Token>,
    /// If it is held through another daemon: the tokens of that hold, of which
    /// one is the holder's.
    pub among: Option<TokenRange>,
    /// For how long, if it is known.
    pub held_for: Option<Duration>,
    /// Once the grant is lost: when the lock is free at the latest.
    pub free_within: Option<Duration>,
    /// What it shows, if it leads.
    pub value: Option<Value>,
    /// Which daemon has the lease, if it is another one and known.
    pub daemon: Option<Arc<str>>,
    /// Address of that daemon, if known.
    pub endpoint: Option<Arc<Endpoint>>,
}

impl HeldView {
    /// Held through another daemon: only what that one wrote is known.
    #[must_use]
    pub fn elsewhere(info: &LeaseInfo) -> Self {
        Self {
            holder: info.holder.clone(),
            session: None,
            token: info.leader,
            among: info.tokens,
            held_for: info.held_for,
            free_within: None,
            value: info.value.clone(),
            daemon: info.daemon.clone(),
            endpoint: info.endpoint.clone(),
        }
    }
}

impl Sessions {
    /// A lock as it is now.
    #[must_use]
    pub fn view(&self, name: &LockName, now: Moment) -> LockView {
        let lock = self.locks.find(name);
        LockView {
            name: name.clone(),
            held: lock.and_then(|lock| self.held_view(lock, now)),
            waiting: lock.map_or(0, |lock| self.locks.waiting(lock)),
        }
    }

    /// When the lock would be free at the latest if it were broken now.
    #[must_use]
    pub fn free_within(&self, name: &LockName, now: Moment) -> Option<Duration> {
        self.free_by(self.locks.find(name)?, now).map(|at| at.since(now))
    }

    pub(super) fn held_view(&self, lock: LockId, now: Moment) -> Option<HeldView> {
        if let Some(grant) = self.locks.grant(lock) {
            return Some(HeldView {
                holder: Some(Arc::clone(&grant.holder)),
                session: self.sessions.get(grant.session.index()).map(|session| session.id),
                token: Some(grant.token),
                among: None,
                held_for: Some(now.since(grant.since)),
                free_within: grant.ends_at.map(|at| at.since(now)),
                value: grant.value.clone(),
                daemon: None,
                endpoint: None,
            });
        }
        held_by_peer(self.locks.blocker(lock)?)
    }

    /// Whether another acquire of this session holds the lock.
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

/// A holder that is known only as what is in the way of the lease.
pub(super) fn held_by_peer(blocker: &Blocker) -> Option<HeldView> {
    match blocker {
        Blocker::HeldByPeer { by } => {
            Some(by.as_deref().map(HeldView::elsewhere).unwrap_or_default())
        }
        Blocker::StoreError(_) => None,
    }
}

//! State of locks as clients and operators read it.

use std::time::Duration;

use crate::{Holder, Token, holder, pb};

/// State of a lock at the time of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Namespace of the lock.
    pub namespace: String,
    /// Name of the lock.
    pub name: String,
    /// True if a session holds the lock.
    pub held: bool,
    /// Holder, if held and known.
    pub holder: Option<Holder>,
    /// Session of the holder, if it is a session of this daemon.
    pub session_id: Option<String>,
    /// Token of the holder, if held and known.
    pub token: Option<Token>,
    /// Time since the grant, if held and known.
    pub held_for: Option<Duration>,
    /// Number of acquires that wait for the lock at this daemon.
    pub waiting: u32,
    /// True if the holder was notified of the loss of its grant and has not
    /// released the lock yet.
    pub ending: bool,
    /// Daemon of the holder, if it is a peer of the responding daemon and known.
    pub daemon: Option<DaemonInfo>,
}

/// Daemon that holds a lease, as described in the record of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonInfo {
    /// Host name and process ID, human-readable.
    pub description: String,
    /// Address of the daemon, if known. It may be out of date.
    pub endpoint: Option<String>,
    /// Name of the host to which `endpoint` is restricted; `None` if `endpoint`
    /// works on any host.
    pub host: Option<String>,
}

impl DaemonInfo {
    /// Returns the endpoint if it can be used from this host.
    pub(crate) fn reachable(&self) -> Option<&str> {
        let here = self.host.as_ref().is_none_or(|host| *host == holder::host());
        self.endpoint.as_deref().filter(|_| here)
    }
}

impl From<pb::DaemonInfo> for DaemonInfo {
    fn from(info: pb::DaemonInfo) -> Self {
        Self {
            description: info.description,
            endpoint: Some(info.endpoint).filter(|endpoint| !endpoint.is_empty()),
            host: Some(info.host).filter(|host| !host.is_empty()),
        }
    }
}

impl From<pb::LockInfo> for LockInfo {
    fn from(info: pb::LockInfo) -> Self {
        let lock = info.lock.unwrap_or_default();
        Self {
            namespace: lock.namespace,
            name: lock.name,
            held: info.held,
            holder: info.holder.map(Holder::from),
            session_id: Some(info.session_id).filter(|id| !id.is_empty()),
            token: info.token.map(Token::new),
            held_for: info.held_for_ms.map(Duration::from_millis),
            waiting: info.waiting,
            ending: info.ending,
            daemon: info.daemon.map(DaemonInfo::from),
        }
    }
}

/// State of a lock including its record in the store. Response to
/// [`Client::inspect_stored`](crate::Client::inspect_stored).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInfo {
    /// State of the lock.
    pub lock: LockInfo,
    /// Human-readable description of the store of the daemon.
    pub store: String,
    /// Location of the lock in the store, for example the path of its blob.
    pub location: Option<String>,
    /// Last break recorded with the lock: operator and reason.
    pub last_break: Option<(String, String)>,
    /// Storage calls of the daemon since its start, for all locks.
    pub calls: Vec<StorageCalls>,
}

/// Counter of storage calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageCalls {
    /// Operation, for example "renew".
    pub operation: String,
    /// Purpose of the calls, for example "grant".
    pub purpose: String,
    /// Number of calls.
    pub count: u64,
}

impl From<pb::InspectResponse> for StoredInfo {
    fn from(response: pb::InspectResponse) -> Self {
        let store = response.store.unwrap_or_default();
        let calls = store.calls.into_iter();
        Self {
            lock: response.lock.unwrap_or_default().into(),
            store: store.description,
            location: Some(store.location).filter(|location| !location.is_empty()),
            last_break: response.last_break.map(|broken| (broken.by, broken.reason)),
            calls: calls.map(StorageCalls::from).collect(),
        }
    }
}

impl From<pb::StorageCalls> for StorageCalls {
    fn from(calls: pb::StorageCalls) -> Self {
        let pb::StorageCalls { operation, purpose, count } = calls;
        Self { operation, purpose, count }
    }
}

/// Relation of a token to the current grant of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenState {
    /// The lock is held with this token.
    Current,
    /// The lock is held with a higher token; fenced resources refuse this one.
    Stale,
    /// The lock is not held. The token belongs to an earlier grant or was never
    /// issued.
    NotHeld,
    /// The lock is held with a lower token; this one was never issued.
    NeverGranted,
    /// A peer of the daemon has the lease, and only that peer knows which token
    /// of the hold is current.
    Unknown,
}

/// Response to [`Client::check`](crate::Client::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// State of the token. It may be out of date on arrival; a fenced resource
    /// compares tokens itself.
    pub state: TokenState,
    /// State of the lock.
    pub lock: LockInfo,
}

/// Response to [`Client::break_lock`](crate::Client::break_lock).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakResult {
    /// False if the lock was not held; the request then had no effect.
    pub broken: bool,
    /// State of the lock before the break.
    pub lock: LockInfo,
    /// Maximum time until the lock is free. The lock is free earlier if the
    /// holder releases it.
    pub free_within: Duration,
}

/// Locks to [watch](crate::Client::watch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The lock with this name.
    Name(String),
    /// All locks whose name starts with this prefix; an empty prefix selects the
    /// whole namespace.
    Prefix(String),
}

/// Initial or changed state of a watched lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// State of the lock.
    pub lock: LockInfo,
    /// True for the states sent at the start of the watch.
    pub initial: bool,
}

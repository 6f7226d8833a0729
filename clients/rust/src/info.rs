//! Locks, seen from outside.

use std::time::Duration;

use crate::{Holder, Token, holder, pb};

/// A lock as the daemon saw it when it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The namespace that the name belongs to.
    pub namespace: String,
    /// The lock's name.
    pub name: String,
    /// Whether a session holds it.
    pub held: bool,
    /// Who, if it is held and known.
    pub holder: Option<Holder>,
    /// The holding session, if it is a session of this daemon.
    pub session_id: Option<String>,
    /// The holder's token, if it is held and known.
    pub token: Option<Token>,
    /// For how long it has been held, if it is known.
    pub held_for: Option<Duration>,
    /// How many acquires wait for it at this daemon.
    pub waiting: u32,
    /// True once the holder has been told that its grant is lost and has not
    /// let go yet.
    pub ending: bool,
    /// The daemon that the holder is a client of, if it is a peer of the daemon
    /// that answered, and known.
    pub daemon: Option<DaemonInfo>,
}

/// A daemon that holds a lease, as its record describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonInfo {
    /// Host name and process ID, human-readable.
    pub description: String,
    /// Address at which it can be reached, if known. A hint.
    pub endpoint: Option<String>,
    /// Name of the only host on which `endpoint` can be used, if there is only
    /// one.
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

/// A lock and how it is stored. The answer to
/// [`Client::inspect_stored`](crate::Client::inspect_stored).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInfo {
    /// The lock as it is now.
    pub lock: LockInfo,
    /// Where the daemon keeps its leases, for people.
    pub store: String,
    /// Where this lock is kept, such as the path of its blob.
    pub location: Option<String>,
    /// The last break that was noted with the lock: who, and why.
    pub last_break: Option<(String, String)>,
    /// How often the daemon has called its storage since it was started, for
    /// all locks.
    pub calls: Vec<StorageCalls>,
}

/// A counter of calls to the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageCalls {
    /// What was done, such as "renew".
    pub operation: String,
    /// Why, such as "grant".
    pub purpose: String,
    /// How often.
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
            calls: calls
                .map(|pb::StorageCalls { operation, purpose, count }| StorageCalls {
                    operation,
                    purpose,
                    count,
                })
                .collect(),
        }
    }
}

/// What is known of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenState {
    /// The lock is held with this token.
    Current,
    /// The lock is held with a greater token: this one is fenced.
    Stale,
    /// The lock is not held: this token is of a grant that has ended, or of
    /// none.
    NotHeld,
    /// The lock is held with a lower token: this one was never granted.
    NeverGranted,
    /// The lock is held through another daemon, and only that one knows whether
    /// with this token or with another of the same hold.
    Unknown,
}

/// The answer to [`Client::check`](crate::Client::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is known of the token. It may be out of date when it arrives: a
    /// resource that must be safe compares tokens itself.
    pub state: TokenState,
    /// The lock as it is now.
    pub lock: LockInfo,
}

/// Response to [`Client::break_lock`](crate::Client::break_lock).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// False if nobody held the lock: then nothing was done.
    pub broken: bool,
    /// The lock as it was before.
    pub lock: LockInfo,
    /// The lock is free for others after this long at the latest, earlier if
    /// the holder lets go.
    pub free_within: Duration,
}

/// What to [watch](crate::Client::watch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The one lock of this name.
    Name(String),
    /// All locks whose name begins with this; empty means all of the
    /// namespace.
    Prefix(String),
}

/// A lock's state, at first or after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The lock as it is now.
    pub lock: LockInfo,
    /// True for the states that were there when the watch began.
    pub initial: bool,
}

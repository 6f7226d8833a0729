//! What is recorded.

use serde::{Deserialize, Serialize};

/// True time, in nanoseconds since the beginning of the history. In a history
/// of real processes: the clock of the machine that they all run on.
pub type Nanos = u64;

/// What happened, in the order in which it happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// What may be expected.
    pub bounds: Bounds,
    /// Ordered by time; of the same time, in the order in which they happened.
    pub entries: Vec<Entry>,
}

/// How long things may take while nothing is disturbed, in nanoseconds. Zero:
/// not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// L1: from the death of a holder's daemon to the next grant, if somebody
    /// waits: the lease's duration, a poll, the margin and some round trips.
    pub takeover: Nanos,
    /// L1: the same from the death of a holder whose daemon is alive: the
    /// session's ttl, a poll if the next one waits elsewhere, and some round trips.
    pub expiry: Nanos,
    /// L2: from a release to the next grant at the same daemon.
    pub local_handover: Nanos,
    /// L2: from a release to the next grant at another daemon.
    pub remote_handover: Nanos,
    /// L4: for how long a lease may outlast the last who held or wanted the lock
    /// at its daemon, or the daemon itself.
    pub orphan: Nanos,
    /// L4: for how long a lease may last that was taken when nobody held or wanted
    /// the lock at its daemon any more.
    pub vain: Nanos,
    /// L5: from the end of all disturbances until an acquire that waits is
    /// granted or refused, if nobody holds the lock meanwhile; and until nobody is
    /// refused for want of service any more.
    pub recovery: Nanos,
    /// E3: from the acknowledgment of a proclaim until every open observer stream
    /// shows its value or a newer one: two polls and some round trips.
    pub visibility: Nanos,
    /// How much two entries of the same moment may be out of order: zero in
    /// simulation, a little where several processes record.
    pub skew: Nanos,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Nanos,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen. Clients, daemons and locks are numbered from 0; operations
/// have numbers that are never used again. A client that was restarted is
/// another client; so is one that opened a new session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Event {
    /// A client asks for a lock through a daemon.
    Acquire { op: u64, client: u32, daemon: u32, lock: u32 },
    /// The client was told that its acquire waits in the daemon's queue.
    Queued { op: u64 },
    /// The client was granted the lock. From here on it may act, until its grant
    /// ends.
    Granted { op: u64, token: u64 },
    /// The acquire failed, or the client gave it up: it will not be granted.
    /// `faulty` if that is neither the client's doing nor because of another
    /// holder: the service could not serve it. `canceled` if its client withdrew it:
    /// the daemon may have granted it by then, and received the release after that.
    Refused {
        op: u64,
        why: String,
        #[serde(default)]
        faulty: bool,
        #[serde(default)]
        canceled: bool,
    },
    /// The client counts on its grant until this moment, unless it hears
    /// something else. Follows `Granted`, and again whenever that changes.
    Valid { client: u32, lock: u32, token: u64, until: Nanos },
    /// The client lets go: it does not act any more. Also of what it has lost.
    Release { op: u64, client: u32, lock: u32, token: u64 },
    /// The client was told that the release is done.
    Released { op: u64 },
    /// The client learnt that its grant is lost, or its own clock told it so: it
    /// does not act any more.
    Lost { client: u32, lock: u32, token: u64 },
    /// The client waited for the loss of its grant, while its clocks ran evenly, and
    /// was told of it now. Its deadline must not have passed before.
    Told { client: u32, lock: u32, token: u64 },
    /// The client lost its grant because its daemon did not list it when the session was
    /// resumed; but the daemon has the grant, and neither lost nor released it.
    StillGranted { client: u32, lock: u32, token: u64 },
    /// The client did something to the resource that the lock protects: with its
    /// token if `fenced`. What the resource made of it.
    Used { client: u32, lock: u32, token: u64, fenced: bool, accepted: bool },
    /// A daemon saw the end of the client's stream: who waits is passed over until it is
    /// back.
    Detached { client: u32 },
    /// The stream of a fenced session ended, as its daemon sees it, and with it goes
    /// this grant: it is given to others from here on, whatever the client still
    /// counts on until it hears of it. Perhaps before it has heard of the grant.
    Freed { client: u32, lock: u32, token: u64 },
    /// A client's process ended without a word. Its session is not closed.
    ClientDied { client: u32 },

    /// The acquire is a campaign: the store publishes this value with the token of its
    /// grant. Follows `Acquire`.
    Campaign { op: u64, value: String },
    /// The client asks its daemon to publish another value under the token of its grant.
    Proclaim { op: u64, client: u32, lock: u32, token: u64, value: String },
    /// The daemon acknowledged the proclaim: every later read of the storage sees this
    /// value or a newer one.
    Proclaimed { op: u64 },
    /// The proclaim failed. Observers may have seen its value or may still see it, until
    /// the next leader's value is published.
    NotProclaimed { op: u64 },
    /// An observer asks a daemon for the current leader. Answered by one `Observed`, or
    /// not at all if the daemon fails.
    ReadLeader { op: u64, daemon: u32, lock: u32 },
    /// An observer opens a stream of leaders at a daemon. Answered by any number of
    /// `Observed`, each with a new state.
    Observe { op: u64, daemon: u32, lock: u32 },
    /// The daemon shows an observer this leader: its token and its value, if it has one.
    /// Neither if there is no leader. `ending` if its grant is lost, but its client may not
    /// have noticed yet.
    Observed {
        op: u64,
        token: Option<u64>,
        value: Option<String>,
        #[serde(default)]
        ending: bool,
    },
    /// The observer's stream ended. The death of its daemon ends it as well.
    ObserveEnded { op: u64 },

    /// A daemon counts on its lease of a lock, with tokens from `first` to
    /// `last`, until this moment. Again whenever that changes.
    Holds { daemon: u32, lock: u32, first: u64, last: u64, until: Nanos },
    /// A daemon does not count on a lease of the lock any more.
    LetGo { daemon: u32, lock: u32 },
    /// A daemon's process ended without a word. A restarted one has another
    /// number.
    DaemonDied { daemon: u32 },

    /// The storage has a lease for this daemon on the lock's blob, until this
    /// moment unless it is renewed. Again whenever that changes.
    Leased { daemon: u32, lock: u32, until: Nanos },
    /// The storage has no lease on the lock's blob any more: it was released,
    /// broken, or has expired, or the blob is gone.
    Unleased { lock: u32 },
    /// A record was stored with the lock's blob: a hold's first token, and by
    /// which daemon.
    Stored { daemon: u32, lock: u32, token: u64 },
    /// The lock's blob was deleted, by an operator or as idle.
    Deleted { lock: u32 },
    /// An operator changed the blob or restored an old one. What it says now is no
    /// daemon's fault; but what daemons store after that must still rise.
    Tampered { lock: u32 },

    /// An operator took the lease away in the storage itself, behind the daemons'
    /// backs. Whoever held the lock up to here may believe in it until its
    /// deadline, and its daemon may hand it on: I2 and I3 are not expected between
    /// holds from before and holds from after this. I6 is: what was taken away
    /// is not renewed. By `until` the lease would have run out by itself: so long
    /// this excuses. If leases are recorded, there must have been one.
    Overruled { lock: u32, until: Nanos },

    /// A daemon's data directory durably reserves all tokens up to `last`.
    /// Before that, the daemon issues none of them.
    Reserved { daemon: u32, last: u64 },
    /// The next daemon starts without the record of the one before, because an
    /// operator moved, deleted or restored its data directory. Holds with tokens
    /// up to `upto` may last until `until`, whatever the next daemon grants: I3
    /// is not expected between them and later ones.
    Forgotten { upto: u64, until: Nanos },

    /// Something disturbs a client, a daemon, the storage or the ways between
    /// them; `what` names it, and the same name ends it.
    Disturbed { what: String },
    /// The disturbance of this name is over.
    Undisturbed { what: String },
    /// This client's clock, or that of its daemon, is beyond what the guarantees
    /// assume: I2, I3 and I6 are not expected of the client's grants from here on.
    ClockBroken { client: u32 },
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A token belongs to one acquire, nobody else uses it, and what a fenced
    /// resource accepts never falls.
    I1,
    /// A grant returned before another acquire was invoked has the lower token.
    I2,
    /// Validity intervals are disjoint in true time.
    I3,
    /// After lost, released or run out, never valid again; and whoever waits for the
    /// loss is told by the deadline.
    I4,
    /// A token is issued only after it is durable, stored by the daemon that issues
    /// it.
    I5,
    /// Client's deadline ≤ daemon's deadline ≤ storage's expiry, and no lease ends
    /// before those who count on it have stopped.
    I6,
    /// The stored token never falls.
    I7,
    /// A dead holder's lock is granted in time.
    L1,
    /// A lock that was released, or lost and let go, is granted in time.
    L2,
    /// Who was queued first is served first.
    L3,
    /// No lease without anybody who wants it.
    L4,
    /// Recovery from any outage.
    L5,
    /// A grant that its daemon has survives the end of its stream: the client is told of it
    /// when it resumes its session.
    L6,
    /// An observed value belongs to the leader whose token it carries: the acquire that
    /// was granted this token campaigned with the value, or its client proclaimed the
    /// value under this token. If no client was told of the token, the value is that of a
    /// campaign whose client was told of no token or of a higher one.
    E1,
    /// The states of one observer stream do not go back: neither to a lower token nor to
    /// an earlier value of the same token. Values are ordered by the proclaims of their
    /// client, after the campaign's own. Streams at different daemons are not compared,
    /// because each daemon polls for itself.
    E2,
    /// An acknowledged proclaim is visible. A read sent after the acknowledgment, at any
    /// daemon, does not show an earlier value of the same token. While nothing is
    /// disturbed and the grant is valid, each open stream shows the value, a later one or
    /// a later leader within `Bounds::visibility`.
    E3,
    /// A former leader is not shown after a newer one, at any daemon. A newer leader
    /// counts from the moment at which the storage has it: its proclaim was acknowledged,
    /// an observer at another daemon than its own was shown it, or another daemon stored
    /// the record of a newer hold. A read that is sent after that shows no lower token,
    /// unless as a leader whose grant is lost. The leader's own daemon shows it earlier, before its value is published.
    E4,
    /// The fenced mutex is linearizable. It is not reentrant: a client that holds it waits
    /// like any other.
    Linearizable,
    /// The history contradicts itself: whoever recorded it made a mistake.
    Malformed,
}

//! Recorded histories: entries, events and the kinds of violations.

use serde::{Deserialize, Serialize};

/// True time, in nanoseconds since the beginning of the history. A history of real
/// processes uses the clock of the machine that runs all of them.
pub type Nanos = u64;

/// Recorded run: its bounds and its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Time limits that the liveness checks apply.
    pub bounds: Bounds,
    /// Entries ordered by time; entries with the same time are in the order in which they
    /// happened.
    pub entries: Vec<Entry>,
}

/// Maximum durations while nothing is disturbed, in nanoseconds. Zero disables a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// L1: maximum time from the death of a holder's daemon to the next grant, if a client
    /// waits. Covers the lease duration, a poll, the margin and some round trips.
    pub takeover: Nanos,
    /// L1: maximum time from the death of a holder, whose daemon is alive, to the next
    /// grant. Covers the session TTL, a poll if the next waiter uses another daemon, and
    /// some round trips.
    pub expiry: Nanos,
    /// L2: maximum time from a release to the next grant at the same daemon.
    #[serde(rename = "local_handover")]
    pub local_handoff: Nanos,
    /// L2: maximum time from a release to the next grant at another daemon.
    #[serde(rename = "remote_handover")]
    pub remote_handoff: Nanos,
    /// L4: maximum time of a lease after the last holder or waiter of its daemon has gone,
    /// or after the daemon has died.
    pub orphan: Nanos,
    /// L4: maximum time of a lease that its daemon acquired when it had no holder and no
    /// waiter any more.
    #[serde(rename = "vain")]
    pub unwanted: Nanos,
    /// L5: maximum time from the end of all disturbances until a waiting acquire is granted
    /// or refused, if no client holds the lock. After the same time, no acquire is refused
    /// because of a fault of the service.
    pub recovery: Nanos,
    /// E3: maximum time from the acknowledgment of a proclaim until every open observer
    /// stream reports its value or a newer one: two polls and some round trips.
    pub visibility: Nanos,
    /// Maximum error in the order of two entries with about the same time: zero in
    /// simulation, more if several processes record.
    pub skew: Nanos,
}

/// Event with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Time of the event.
    pub at: Nanos,
    /// Event.
    #[serde(flatten)]
    pub event: Event,
}

/// Recorded event. Clients, daemons and locks are numbered from 0. Operation numbers are
/// never reused. A restarted client, or one with a new session, counts as a new client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants describe their fields")]
pub enum Event {
    /// A client requests a lock from a daemon.
    Acquire { op: u64, client: u32, daemon: u32, lock: u32 },
    /// The daemon notified the client that its acquire waits in the queue.
    Queued { op: u64 },
    /// The client received its grant. It may act until the grant ends.
    Granted { op: u64, token: u64 },
    /// The acquire failed, or the client stopped waiting: it will not be granted. `faulty`
    /// if the service could not serve it, so that neither the client nor another holder is
    /// the cause. `canceled` if the client withdrew it. The daemon may have granted it by
    /// then, and have received the release after that.
    Refused {
        op: u64,
        why: String,
        #[serde(default)]
        faulty: bool,
        #[serde(default)]
        canceled: bool,
    },
    /// The client relies on its grant until this time, unless a later event changes that.
    /// Follows `Granted`, and is recorded again at every change.
    Valid { client: u32, lock: u32, token: u64, until: Nanos },
    /// The client releases its grant and stops acting. Also recorded for a lost grant.
    Release { op: u64, client: u32, lock: u32, token: u64 },
    /// The client received the response to its release.
    Released { op: u64 },
    /// The client received the loss of its grant, or its own clock passed the deadline. It
    /// stops acting.
    Lost { client: u32, lock: u32, token: u64 },
    /// A client that waited for the loss of its grant, without a pause or a clock jump, was
    /// notified now. The deadline must not have passed before.
    #[serde(rename = "told")]
    LossNotified { client: u32, lock: u32, token: u64 },
    /// The client lost its grant because its daemon did not list it when the session was
    /// resumed; but the daemon has the grant, and neither lost nor released it.
    StillGranted { client: u32, lock: u32, token: u64 },
    /// The client used the resource that the lock protects, with its token if `fenced`.
    /// `accepted` is the decision of the resource.
    Used { client: u32, lock: u32, token: u64, fenced: bool, accepted: bool },
    /// A daemon detected the end of the client's stream. It skips the client's acquires
    /// until the client is back.
    Detached { client: u32 },
    /// The daemon detected the end of the stream of a fenced session and ended this grant.
    /// Other clients may be granted the lock from now on, regardless of the validity that
    /// the client still has. May precede the `Granted` of the client.
    Freed { client: u32, lock: u32, token: u64 },
    /// A client's process ended without closing its session.
    ClientDied { client: u32 },

    /// The acquire is a campaign: the store publishes this value with the token of its
    /// grant. Follows `Acquire`.
    Campaign { op: u64, value: String },
    /// The client asks its daemon to publish another value under the token of its grant.
    Proclaim { op: u64, client: u32, lock: u32, token: u64, value: String },
    /// The daemon acknowledged the proclaim: every later read of the storage returns this
    /// value or a newer one.
    Proclaimed { op: u64 },
    /// The proclaim failed. Observers may have seen its value or may still see it, until
    /// the next leader's value is published.
    NotProclaimed { op: u64 },
    /// An observer asks a daemon for the current leader. One `Observed` follows, or none if
    /// the daemon fails.
    ReadLeader { op: u64, daemon: u32, lock: u32 },
    /// An observer opens a stream of leaders at a daemon. Any number of `Observed` follow,
    /// each with a new state.
    Observe { op: u64, daemon: u32, lock: u32 },
    /// The daemon reports this leader to an observer: its token, and its value if it has
    /// one. Neither is set if there is no leader. `ending` if the grant is lost, but the
    /// leader may not have noticed yet.
    Observed {
        op: u64,
        token: Option<u64>,
        value: Option<String>,
        #[serde(default)]
        ending: bool,
    },
    /// The observer's stream ended. The death of its daemon ends it as well.
    ObserveEnded { op: u64 },

    /// A daemon relies on its lease of a lock, with tokens from `first` to `last`, until
    /// this time. Recorded again at every change.
    Holds { daemon: u32, lock: u32, first: u64, last: u64, until: Nanos },
    /// The daemon no longer relies on a lease of the lock.
    #[serde(rename = "let_go")]
    HoldEnded { daemon: u32, lock: u32 },
    /// A daemon's process ended without a clean shutdown. A restarted daemon has a new
    /// number.
    DaemonDied { daemon: u32 },

    /// The storage has a lease for this daemon on the lock's blob, until this time unless
    /// it is renewed. Recorded again at every change.
    Leased { daemon: u32, lock: u32, until: Nanos },
    /// The lock's blob has no lease any more: it was released, broken, or has expired, or
    /// the blob was deleted.
    Unleased { lock: u32 },
    /// This daemon stored a record with the lock's blob: the first token of a hold.
    Stored { daemon: u32, lock: u32, token: u64 },
    /// The lock's blob was deleted, by an operator or because it was idle.
    Deleted { lock: u32 },
    /// An operator changed the blob or restored an old one. Its current content is not an
    /// error of a daemon; but the tokens that daemons store after that must still increase.
    Tampered { lock: u32 },

    /// An operator broke the lease in the storage itself, which the daemons can't detect at
    /// once. The holder up to here may rely on the lock until its deadline, and its daemon
    /// may hand it off. I2 and I3 therefore do not apply between holds from before and holds
    /// from after this, and I6 excuses the early end until `until`, the regular expiry of
    /// the lease. I6 does apply to renewals: a broken lease can't be renewed. If leases are
    /// recorded, there must have been one.
    Overruled { lock: u32, until: Nanos },

    /// A daemon's data directory durably reserves all tokens up to `last`. Before that, the
    /// daemon issues none of them.
    Reserved { daemon: u32, last: u64 },
    /// The next daemon starts without the record of its predecessor, because an operator
    /// moved, deleted or restored its data directory. Holds with tokens up to `upto` may
    /// last until `until`, regardless of the grants of the next daemon. I3 does not apply
    /// between them and later holds.
    Forgotten { upto: u64, until: Nanos },

    /// A fault begins that affects a client, a daemon, the storage or a connection between
    /// them. `what` names it, and the same name ends it.
    Disturbed { what: String },
    /// The fault of this name has ended.
    Undisturbed { what: String },
    /// The clock of this client, or that of its daemon, violates the assumptions of the
    /// guarantees. I2, I3 and I6 do not apply to the client's grants from here on.
    ClockBroken { client: u32 },
}

/// Guarantee that a violation breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A token belongs to one acquire, no other client uses it, and the tokens that a fenced
    /// resource accepts never decrease.
    I1,
    /// If a grant was returned before another acquire was invoked, it has the lower token.
    I2,
    /// Validity intervals of a lock are disjoint in true time.
    I3,
    /// A grant that was lost, released or has expired is never valid again. A client that
    /// waits for the loss is notified by the deadline.
    I4,
    /// A token is issued only after it is durable, stored by the daemon that issues it.
    I5,
    /// Client's deadline ≤ daemon's deadline ≤ storage's expiry, and no lease ends before
    /// the clients and the daemon that rely on it have stopped.
    I6,
    /// The stored token never decreases.
    I7,
    /// A dead holder's lock is granted in time.
    L1,
    /// A lock is granted in time after a release, also after the release of a lost grant.
    L2,
    /// The acquire that was queued first is granted first.
    L3,
    /// A lease without a holder or a waiter ends in time.
    L4,
    /// The service recovers from any outage.
    L5,
    /// A grant that its daemon has survives the end of its stream: the daemon lists it when
    /// the client resumes its session.
    L6,
    /// An observed value belongs to the leader whose token it carries: the acquire that
    /// was granted this token campaigned with the value, or its client proclaimed the
    /// value under this token. If no client received the token, the value is that of a
    /// campaign whose client received no token or a higher one.
    E1,
    /// The states of one observer stream do not go back: neither to a lower token nor to
    /// an earlier value of the same token. Values are ordered by the proclaims of their
    /// client, after the value of the campaign. Streams at different daemons are not
    /// compared, because each daemon polls for itself.
    E2,
    /// An acknowledged proclaim is visible. A read sent after the acknowledgment, at any
    /// daemon, does not return an earlier value of the same token. While nothing is
    /// disturbed and the grant is valid, each open stream reports the value, a later one or
    /// a later leader within `Bounds::visibility`.
    E3,
    /// A former leader is not reported after a newer one, at any daemon. A newer leader
    /// counts from the time at which the storage has it: its proclaim was acknowledged, a
    /// daemon other than its own reported it to an observer, or another daemon stored the
    /// record of a newer hold. A read sent after that returns no lower token, unless as a
    /// leader whose grant is lost. The leader's own daemon reports it earlier, before its
    /// value is published.
    E4,
    /// The fenced mutex is linearizable. It is not reentrant: a client that holds it waits
    /// like any other.
    Linearizable,
    /// The history contradicts itself, because of an error in the recorder.
    Malformed,
}

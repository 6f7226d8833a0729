//! Machine-readable reasons of refusals, losses and failed calls.

/// Reason why a lock was not granted, or was lost. The same list as
/// `leasehold.v1.Reason`, and reasons that only a client reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Another acquire holds the lock, and the request does not wait.
    Held,
    /// The wait ended before the lock was free.
    TimedOut,
    /// The client canceled the request.
    Canceled,
    /// A field of the request is invalid.
    Invalid,
    /// The handle names no grant of this session.
    UnknownHandle,
    /// The daemon is shutting down.
    ShuttingDown,
    /// The storage can't be reached or does not accept writes.
    StoreUnavailable,
    /// After a crash, the daemon waits until every earlier grant has ended.
    Recovering,
    /// The lock is frozen: its record is invalid or regressed.
    DataLoss,
    /// A limit of the daemon is reached.
    Limit,
    /// The session was silent for longer than its TTL.
    Expired,
    /// An operator broke the lock.
    Broken,
    /// The maximum hold time of the acquire has passed.
    MaxHoldTime,
    /// The storage lease ended without having been renewed.
    LeaseLost,
    /// The daemon does not know the session.
    UnknownSession,
    /// Client and daemon have no version of the protocol in common.
    ProtocolVersion,
    /// The messages arrived in an order that the protocol does not allow.
    Protocol,
    /// An operator asked the leader to step down.
    StepDown,
    /// Another stream resumed the session, and has its grants now.
    ResumedElsewhere,
    /// The leader's work made no progress in time. Reported by the client only.
    NoProgress,
    /// The leader stepped down without a request. Reported by the client only.
    SteppedDown,
    /// A reason that this version of the client does not know.
    Unknown,
}

//! Diagnosis for operators: one lock in detail, and the main numbers of a daemon.

use std::time::Duration;

use crate::{
    Client, Error, Holder, LockInfo, StorageCalls, Token, connection::diagnostics, name, pb,
};

/// State of one lock in detail, as known to the responding daemon. Informational.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Current state.
    pub lock: LockInfo,
    /// Machine-readable reason why the queue does or does not advance, for example
    /// "waiting_for_holder".
    pub diagnosis: String,
    /// The same as one or two human-readable sentences.
    pub summary: String,
    /// Next steps of an operator, most useful first.
    pub advice: Vec<String>,
    /// Grant of a session of the daemon.
    pub grant: Option<GrantDetails>,
    /// Lease of the lock.
    pub lease: LeaseDetails,
    /// First waiters at the daemon, in order.
    pub waiters: Vec<Waiter>,
    /// Recent events at the daemon, oldest first.
    pub events: Vec<LockEvent>,
    /// Error of the store, if it could not be read.
    pub store_error: Option<String>,
}

/// Remaining time of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantDetails {
    /// Time until the grant ends, unless its session and its lease are extended.
    pub time_left: Duration,
    /// Time since the last keep-alive of the session.
    pub last_keep_alive: Duration,
    /// TTL of the session.
    pub ttl: Duration,
    /// Time until the grant ends in any case, if it is limited.
    pub ends_in: Option<Duration>,
    /// True if the session has a stream.
    pub is_connected: bool,
    /// True if the holder leads an election.
    pub is_leader: bool,
}

/// Lease of a lock. Durations are `None` if the lease does not expire or the state
/// has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseDetails {
    /// State: none, acquiring, blocked, held or releasing.
    pub state: String,
    /// Duration of the lease.
    pub duration: Option<Duration>,
    /// Time until the lease counts as lost, unless it is renewed.
    pub valid_for: Option<Duration>,
    /// Time until the next renewal.
    pub renew_in: Option<Duration>,
    /// Number of consecutive renewals that failed.
    pub failed_renewals: u32,
    /// True if the holder was warned that its grant may be lost.
    pub is_at_risk: bool,
    /// Time for which the unused lease is still kept.
    pub lingers_for: Option<Duration>,
    /// Time until the next attempt to acquire the lease.
    pub next_attempt_in: Option<Duration>,
    /// Number of attempts without success to acquire or to release the lease.
    pub attempts: u32,
    /// Last renewals, oldest first.
    pub renewals: Vec<Renewal>,
}

/// A renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Time since the answer.
    pub ago: Duration,
    /// Duration of the call.
    pub took: Duration,
    /// Validity that was left when the answer arrived.
    pub left: Duration,
    /// True if the lease was renewed.
    pub is_renewed: bool,
}

/// A waiting acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Description of the client.
    pub holder: Holder,
    /// Session of the acquire.
    pub session_id: String,
    /// Time since the acquire arrived.
    pub waiting_for: Duration,
    /// Time until the acquire is refused, if it is limited.
    pub times_out_in: Option<Duration>,
    /// True if the session has a stream. Other waiters are passed over.
    pub is_connected: bool,
    /// True if it campaigns for the leadership of an election.
    pub is_candidate: bool,
}

/// Event of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEvent {
    /// Number of the event, which increases with every event of the daemon.
    pub number: u64,
    /// Time since the event.
    pub ago: Duration,
    /// Machine-readable kind, for example "granted".
    pub kind: String,
    /// Description of the client, if the event is about one.
    pub holder: Option<Holder>,
    /// Token of the grant, if the event is about one.
    pub token: Option<Token>,
    /// Time from the acquire to this event.
    pub waited: Option<Duration>,
    /// Time from the grant to this event.
    pub held_for: Option<Duration>,
    /// Machine-readable cause, for example "broken"; empty if there is none.
    pub cause: String,
    /// The event as a human-readable sentence.
    pub detail: String,
}

/// Main numbers of a daemon. Totals are numbers of that daemon alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// Number of sessions.
    pub sessions: u64,
    /// Number of locks with a holder, a waiter or a pending call.
    pub locks: u64,
    /// Number of locks that a session holds.
    pub held: u64,
    /// Number of waiting acquires.
    pub waiting: u64,
    /// Number of elections that have a candidate and no leader.
    pub leaderless: u64,
    /// Number of locks whose grant is at risk.
    pub at_risk: u64,
    /// Longest time that a waiter has waited.
    pub oldest_wait: Option<Duration>,
    /// Locks by the time that they are held, longest first.
    pub longest_held: Vec<LockSummary>,
    /// Locks by the number of waiters, most first.
    pub longest_queues: Vec<LockSummary>,
    /// Locks whose grant is at risk, least time first.
    pub most_at_risk: Vec<LockSummary>,
    /// Locks with the most grants in the last one to two minutes, most first.
    pub busiest: Vec<BusyLock>,
    /// Counters since the start of the daemon.
    pub counters: Counters,
    /// Human-readable description of the store.
    pub store: String,
    /// Reason why the store can't grant now, if there is one.
    pub store_problem: Option<String>,
    /// Storage calls since the start of the daemon.
    pub calls: Vec<StorageCalls>,
}

/// Main numbers of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSummary {
    /// Namespace of the lock.
    pub namespace: String,
    /// Name of the lock.
    pub name: String,
    /// Holder, if a session of the daemon holds the lock.
    pub holder: Option<Holder>,
    /// Token of the holder.
    pub token: Option<Token>,
    /// Time since the grant.
    pub held_for: Option<Duration>,
    /// Time until the grant ends, unless its session and its lease are extended.
    pub time_left: Option<Duration>,
    /// Number of waiters.
    pub waiting: u32,
    /// Time that the first waiter has waited.
    pub longest_wait: Option<Duration>,
    /// True if the grant is at risk.
    pub is_at_risk: bool,
    /// True if the lock is used as an election.
    pub is_election: bool,
    /// True if a peer held the lock at the daemon's last attempt to acquire its lease.
    pub is_held_by_peer: bool,
}

/// Number of recent grants of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyLock {
    /// Namespace of the lock.
    pub namespace: String,
    /// Name of the lock.
    pub name: String,
    /// Grants in the last one to two minutes.
    pub grants: u32,
}

/// Counters of a daemon since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Acquires that were granted.
    pub grants: u64,
    /// Acquires that were refused.
    pub refusals: u64,
    /// Grants that were released.
    pub releases: u64,
    /// Grants that were lost.
    pub losses: u64,
    /// Grants under the lease of the holder before.
    pub handoffs: u64,
    /// Warnings that a grant may be lost.
    pub at_risk: u64,
}

impl Client {
    /// Explains the state of a lock: holder, remaining time, lease, waiters in order,
    /// and recent events at the daemon.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name, [`Error::Unavailable`] if no daemon
    /// responds.
    pub async fn explain(&self, name: &str) -> Result<Explanation, Error> {
        let request = pb::ExplainRequest { lock: Some(name::lock_ref(self.namespace(), name)?) };
        let response = self.connection().call(request, |channel, request| async move {
            diagnostics(channel).explain(request).await
        });
        Ok(response.await?.into())
    }

    /// Explains the same lock at the daemon of its holder. `None` if the lock is not held
    /// through a peer, or that peer can't be reached from this host.
    pub async fn explain_at_peer(&self, explanation: &Explanation) -> Option<Explanation> {
        let LockInfo { namespace, name, daemon, .. } = &explanation.lock;
        let lock = Some(name::lock_ref(namespace, name).ok()?);
        let peer = self.peer(daemon.as_ref()).await?;
        let response = peer.call(pb::ExplainRequest { lock }, |channel, request| async move {
            diagnostics(channel).explain(request).await
        });
        response.await.ok().map(Explanation::from)
    }

    /// Returns the main numbers of the daemon, with at most `limit` locks in each list.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no daemon responds.
    pub async fn overview(&self, limit: u32) -> Result<Overview, Error> {
        let request = pb::OverviewRequest { limit };
        let response = self.connection().call(request, |channel, request| async move {
            diagnostics(channel).overview(request).await
        });
        Ok(response.await?.into())
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn present(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<pb::ExplainResponse> for Explanation {
    fn from(response: pb::ExplainResponse) -> Self {
        Self {
            lock: response.lock.unwrap_or_default().into(),
            diagnosis: response.diagnosis,
            summary: response.summary,
            advice: response.advice,
            grant: response.grant.map(GrantDetails::from),
            lease: response.lease.unwrap_or_default().into(),
            waiters: response.waiters.into_iter().map(Waiter::from).collect(),
            events: response.events.into_iter().map(LockEvent::from).collect(),
            store_error: present(response.store_error),
        }
    }
}

impl From<pb::GrantDetails> for GrantDetails {
    fn from(grant: pb::GrantDetails) -> Self {
        Self {
            time_left: ms(grant.time_left_ms),
            last_keep_alive: ms(grant.last_keep_alive_ms),
            ttl: ms(grant.ttl_ms),
            ends_in: grant.ends_in_ms.map(ms),
            is_connected: grant.connected,
            is_leader: grant.leader,
        }
    }
}

impl From<pb::LeaseDetails> for LeaseDetails {
    fn from(lease: pb::LeaseDetails) -> Self {
        Self {
            state: lease.state,
            duration: lease.duration_ms.map(ms),
            valid_for: lease.valid_for_ms.map(ms),
            renew_in: lease.renew_in_ms.map(ms),
            failed_renewals: lease.failed_renewals,
            is_at_risk: lease.at_risk,
            lingers_for: lease.lingers_for_ms.map(ms),
            next_attempt_in: lease.next_attempt_in_ms.map(ms),
            attempts: lease.attempts,
            renewals: lease.renewals.into_iter().map(Renewal::from).collect(),
        }
    }
}

impl From<pb::Renewal> for Renewal {
    fn from(renewal: pb::Renewal) -> Self {
        Self {
            ago: ms(renewal.ago_ms),
            took: ms(renewal.took_ms),
            left: ms(renewal.left_ms),
            is_renewed: renewal.renewed,
        }
    }
}

impl From<pb::Waiter> for Waiter {
    fn from(waiter: pb::Waiter) -> Self {
        Self {
            holder: waiter.holder.unwrap_or_default().into(),
            session_id: waiter.session_id,
            waiting_for: ms(waiter.waiting_for_ms),
            times_out_in: waiter.times_out_in_ms.map(ms),
            is_connected: waiter.connected,
            is_candidate: waiter.candidate,
        }
    }
}

impl From<pb::LockEvent> for LockEvent {
    fn from(event: pb::LockEvent) -> Self {
        Self {
            number: event.number,
            ago: ms(event.ago_ms),
            kind: event.kind,
            holder: event.holder.map(Holder::from),
            token: event.token.map(Token::new),
            waited: event.waited_ms.map(ms),
            held_for: event.held_for_ms.map(ms),
            cause: event.cause,
            detail: event.detail,
        }
    }
}

impl From<pb::OverviewResponse> for Overview {
    fn from(response: pb::OverviewResponse) -> Self {
        let store = response.store.unwrap_or_default();
        let list = |locks: Vec<pb::LockSummary>| locks.into_iter().map(LockSummary::from).collect();
        Self {
            sessions: response.sessions,
            locks: response.locks,
            held: response.held,
            waiting: response.waiting,
            leaderless: response.leaderless,
            at_risk: response.at_risk,
            oldest_wait: response.oldest_wait_ms.map(ms),
            longest_held: list(response.longest_held),
            longest_queues: list(response.longest_queues),
            most_at_risk: list(response.most_at_risk),
            busiest: response.busiest.into_iter().map(BusyLock::from).collect(),
            counters: response.counters.unwrap_or_default().into(),
            store: store.description,
            store_problem: present(response.store_problem),
            calls: store.calls.into_iter().map(StorageCalls::from).collect(),
        }
    }
}

impl From<pb::LockSummary> for LockSummary {
    fn from(summary: pb::LockSummary) -> Self {
        let lock = summary.lock.unwrap_or_default();
        Self {
            namespace: lock.namespace,
            name: lock.name,
            holder: summary.holder.map(Holder::from),
            token: summary.token.map(Token::new),
            held_for: summary.held_for_ms.map(ms),
            time_left: summary.time_left_ms.map(ms),
            waiting: summary.waiting,
            longest_wait: summary.longest_wait_ms.map(ms),
            is_at_risk: summary.at_risk,
            is_election: summary.election,
            is_held_by_peer: summary.held_by_peer,
        }
    }
}

impl From<pb::BusyLock> for BusyLock {
    fn from(busy: pb::BusyLock) -> Self {
        let lock = busy.lock.unwrap_or_default();
        Self { namespace: lock.namespace, name: lock.name, grants: busy.grants }
    }
}

impl From<pb::Counters> for Counters {
    fn from(counters: pb::Counters) -> Self {
        Self {
            grants: counters.grants,
            refusals: counters.refusals,
            releases: counters.releases,
            losses: counters.losses,
            handoffs: counters.handoffs,
            at_risk: counters.at_risk,
        }
    }
}

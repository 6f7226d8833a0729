//! State of a lock in detail, for operators.

use std::{sync::Arc, time::Duration};

use leasehold_time::Moment;
use leasehold_types::{Holder, LockName};

use super::{
    grant::{Grant, LockId, SessionKey},
    lease::{Blocker, Lease},
    queue::{WaitLimit, Waiter},
    renew::RenewalSample,
    state::Lock,
    table::Locks,
};

/// State of a lock's lease, from the view of this daemon.
#[derive(Clone, Debug)]
pub enum LeaseView {
    /// This daemon neither holds nor requests the lease.
    None,
    /// The acquire call is pending.
    Acquiring {
        /// Time since the call was sent.
        since: Duration,
    },
    /// The lease can't be acquired now.
    Blocked {
        /// Reason.
        blocker: Blocker,
        /// Time until the next attempt.
        next_attempt_in: Duration,
        /// Attempts without success so far.
        attempts: u32,
    },
    /// This daemon holds the lease.
    Held(HeldLease),
    /// The release is pending, or is retried.
    Releasing {
        /// Failed attempts so far.
        failures: u32,
    },
}

/// Lease that this daemon holds. Durations are `None` if the lease does not expire.
#[derive(Clone, Debug, Default)]
pub struct HeldLease {
    /// Duration of the lease.
    pub duration: Option<Duration>,
    /// Time until the lease counts as lost, unless it is renewed.
    pub valid_for: Option<Duration>,
    /// Time until the next renewal. None while one is pending.
    pub renew_in: Option<Duration>,
    /// Consecutive renewals that failed.
    pub failed_renewals: u32,
    /// True if the holder was warned.
    pub is_at_risk: bool,
    /// Time for which the unused lease is still kept.
    pub lingers_for: Option<Duration>,
    /// Last renewals, oldest first.
    pub renewals: Vec<RenewalSample>,
}

/// A queued acquire.
#[derive(Clone, Debug)]
pub struct QueuedAcquire {
    /// Session of the acquire.
    pub session: SessionKey,
    /// Description of the session's client.
    pub holder: Arc<Holder>,
    /// Time since the acquire arrived.
    pub waiting_for: Duration,
    /// Time until the acquire is refused, if it is limited.
    pub times_out_in: Option<Duration>,
    /// True if its session has a stream. Other waiters are passed over.
    pub is_connected: bool,
    /// True if it campaigns for the leadership of an election.
    pub is_candidate: bool,
}

/// Main numbers of a lock in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance<'a> {
    pub(crate) lock: LockId,
    pub(crate) name: &'a LockName,
    pub(crate) grant: Option<&'a Grant>,
    pub(crate) waiting: usize,
    pub(crate) longest_wait: Option<Duration>,
    pub(crate) is_at_risk: bool,
    pub(crate) has_candidate: bool,
    pub(crate) is_held_by_peer: bool,
}

impl Locks {
    /// Returns the state of a lock's lease.
    #[must_use]
    pub fn lease_view(&self, lock: LockId, now: Moment) -> LeaseView {
        self.get(lock).map_or(LeaseView::None, |lock| lock.lease_view(now))
    }

    /// Returns the first waiters, in order.
    #[must_use]
    pub fn queue_view(&self, lock: LockId, limit: usize, now: Moment) -> Vec<QueuedAcquire> {
        let queue = self.get(lock).and_then(|lock| lock.queue.as_deref());
        let waiters = queue.into_iter().flat_map(|queue| queue.iter());
        waiters.take(limit).map(|waiter| waiter.view(now)).collect()
    }

    /// Returns the locks at the indexes from `from` on, at most `count` indexes of the
    /// table, and the index after them; none if the table has no more.
    pub(crate) fn glance(
        &self,
        from: usize,
        count: usize,
        now: Moment,
    ) -> (impl Iterator<Item = Glance<'_>>, Option<usize>) {
        let end = from.saturating_add(count);
        let next = (end < self.capacity()).then_some(end);
        let locks = (from..end.min(self.capacity()))
            .filter_map(move |index| Some(self.get(LockId(index as u32))?.glance(index, now)));
        (locks, next)
    }
}

impl Lock {
    fn lease_view(&self, now: Moment) -> LeaseView {
        match &self.lease {
            Lease::None => LeaseView::None,
            // The blocker of the attempt before probably still applies.
            Lease::Acquiring { previous: Some(waiting), .. } => LeaseView::Blocked {
                blocker: waiting.blocker.clone(),
                next_attempt_in: Duration::ZERO,
                attempts: waiting.polls + 1,
            },
            Lease::Acquiring { since, .. } => LeaseView::Acquiring { since: now.since(*since) },
            Lease::Waiting(waiting) => LeaseView::Blocked {
                blocker: waiting.blocker.clone(),
                next_attempt_in: waiting.until.since(now),
                attempts: waiting.polls + 1,
            },
            Lease::Held { renewal, linger_until, .. } => {
                let renewal = renewal.as_deref();
                LeaseView::Held(HeldLease {
                    duration: renewal.map(|renewal| renewal.duration()),
                    valid_for: renewal.map(|renewal| renewal.valid_until().since(now)),
                    renew_in: renewal
                        .and_then(|renewal| renewal.renew_at())
                        .map(|at| at.since(now)),
                    failed_renewals: renewal.map_or(0, |renewal| renewal.failures()),
                    is_at_risk: renewal.is_some_and(|renewal| renewal.is_at_risk()),
                    lingers_for: linger_until.map(|until| until.since(now)),
                    renewals: renewal.map(|renewal| renewal.samples().to_vec()).unwrap_or_default(),
                })
            }
            Lease::Releasing { failures, .. } => LeaseView::Releasing { failures: *failures },
        }
    }

    fn glance(&self, index: usize, now: Moment) -> Glance<'_> {
        let renewal = match &self.lease {
            Lease::Held { renewal, .. } => renewal.as_deref(),
            _ => None,
        };
        let first = self.queue.as_ref().and_then(|queue| queue.iter().next());
        Glance {
            lock: LockId(index as u32),
            name: &self.name,
            grant: self.grant(),
            waiting: self.waiting(),
            longest_wait: first.map(|waiter| now.since(waiter.since)),
            is_at_risk: renewal.is_some_and(|renewal| renewal.is_at_risk()),
            has_candidate: first.is_some_and(|waiter| waiter.value.is_some()),
            is_held_by_peer: matches!(self.blocker(), Some(Blocker::HeldByPeer { .. })),
        }
    }
}

impl Waiter {
    fn view(&self, now: Moment) -> QueuedAcquire {
        QueuedAcquire {
            session: self.session,
            holder: Arc::clone(&self.holder),
            waiting_for: now.since(self.since),
            times_out_in: match self.wait_limit {
                WaitLimit::None => Some(Duration::ZERO),
                WaitLimit::Until(until) => Some(until.since(now)),
                WaitLimit::Forever => None,
            },
            is_connected: self.connected,
            is_candidate: self.value.is_some(),
        }
    }
}

//! State of a lock's lease, and delays between attempts to acquire it.

use std::{sync::Arc, time::Duration};

use leasehold_store::{Error, LeaseId, LeaseInfo};
use leasehold_time::Moment;
use leasehold_types::TokenRange;

use super::{publish::Publishing, queue::Ticket, renew::RenewalState, table::Cx};

/// First delay before another attempt to acquire a lease.
const INITIAL_POLL_DELAY: Duration = Duration::from_millis(250);

/// Maximum retry delay that a store may request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// State of the storage lease. At most one call for it is pending, besides a renewal.
#[derive(Debug)]
pub(super) enum Lease {
    /// Neither held nor requested.
    None,
    /// The acquire call is pending.
    Acquiring {
        id: LeaseId,
        duration: Duration,
        /// Blocker of the previous attempt, which probably still applies.
        previous: Option<Box<Waiting>>,
        /// Waiter that the record names as the holder.
        recorded: Ticket,
        /// True if that waiter campaigns.
        is_campaign: bool,
        /// Clock jumps since the call was sent.
        jumps: Duration,
        /// Time at which the call was sent.
        since: Moment,
    },
    /// Unavailable; the next attempt is scheduled.
    Waiting(Box<Waiting>),
    /// Held by this daemon.
    Held {
        id: LeaseId,
        tokens: TokenRange,
        /// None if the lease lasts as long as the process.
        renewal: Option<Box<RenewalState>>,
        /// More tokens are being reserved.
        awaits_tokens: bool,
        /// End of the linger period, which starts when the lock has no holder and no
        /// waiter. A grant clears it. A waiter that times out does not extend it.
        linger_until: Option<Moment>,
        /// Waiter that the record names as the holder, until the first grant.
        recorded: Option<Ticket>,
        /// Publication state, once the lock was used as an election.
        publishing: Option<Box<Publishing>>,
    },
    /// The release is pending. It is retried until the store confirms it.
    Releasing {
        id: LeaseId,
        retry_at: Option<Moment>,
        failures: u32,
        /// Time at which the lease has expired, if leases of the store expire.
        expires_at: Moment,
        /// State after the release, if not [`Lease::None`].
        then: Option<Box<Waiting>>,
    },
}

/// A lease that could not be acquired.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Time of the next attempt.
    pub(super) until: Moment,
    /// Attempts without success so far.
    pub(super) polls: u32,
    pub(super) blocker: Blocker,
}

/// Reason why a lease can't be acquired now.
#[derive(Clone, Debug)]
pub enum Blocker {
    /// Another daemon holds it.
    HeldByPeer {
        /// Description of that hold, if known.
        by: Option<Arc<LeaseInfo>>,
    },
    /// The store returned an error.
    StoreError(Error),
}

/// Schedules the next attempt to acquire a lease.
pub(super) fn retry_later(blocker: Blocker, polls: u32, cx: &mut Cx<'_>) -> Box<Waiting> {
    let delay = match &blocker {
        Blocker::StoreError(Error::Recovering { remaining }) => *remaining,
        Blocker::StoreError(Error::Unavailable { retry_after: Some(after), .. }) => {
            (*after).min(MAX_RETRY_AFTER).max(backoff(polls, cx))
        }
        _ => backoff(polls, cx),
    };
    Box::new(Waiting { until: cx.now + delay, polls, blocker })
}

/// Returns the delay after this many consecutive failures.
pub(super) fn backoff(failures: u32, cx: &mut Cx<'_>) -> Duration {
    cx.entropy.jitter((INITIAL_POLL_DELAY * (1 << failures.min(8))).min(cx.settings.poll_interval))
}

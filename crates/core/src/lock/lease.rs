//! What is known of a lock's lease, and when to try again.

use std::{sync::Arc, time::Duration};

use leasehold_store::{Error, LeaseId, LeaseInfo};
use leasehold_time::Moment;
use leasehold_types::TokenRange;

use super::{publish::Publishing, queue::Ticket, renew::RenewalState, table::Cx};

/// First delay before another attempt to acquire a lease.
const INITIAL_POLL_DELAY: Duration = Duration::from_millis(250);

/// Maximum delay that a store may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What is known of the storage lease. One call is under way at most, except
/// that a renewal may be.
#[derive(Debug)]
pub(super) enum Lease {
    /// Not ours, and not asked for.
    None,
    /// Asked for.
    Acquiring {
        id: LeaseId,
        duration: Duration,
        /// What was in the way the last time, if it is not the first: it most
        /// likely still is.
        before: Option<Box<Waiting>>,
        /// For whom: the store shows this one to others.
        shown: Ticket,
        /// Whether as a leader.
        campaigns: bool,
        /// Clock jumps since the call was sent.
        jumps: Duration,
    },
    /// Unavailable; the next attempt is scheduled.
    Waiting(Box<Waiting>),
    /// Ours.
    Held {
        id: LeaseId,
        tokens: TokenRange,
        /// None if it lasts as long as the process.
        renewal: Option<Box<RenewalState>>,
        /// More tokens are being reserved.
        awaits_tokens: bool,
        /// Set since nobody holds or wants the lock: until then it is kept, unless
        /// somebody is granted it. Whoever waits in vain meanwhile changes nothing.
        linger_until: Option<Moment>,
        /// Whom the store shows as its first holder, until there is one.
        shown: Option<Ticket>,
        /// What others are to see, once it was more than a plain lock.
        publishing: Option<Box<Publishing>>,
    },
    /// Being given up; tried until the store says so.
    Releasing {
        id: LeaseId,
        retry_at: Option<Moment>,
        failures: u32,
        /// When the lease has run out by itself, where leases do.
        over_at: Moment,
        /// What to wait for after that, if anything.
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
    /// Another daemon has it.
    HeldByPeer {
        /// For whom, if that is known.
        by: Option<Arc<LeaseInfo>>,
    },
    /// The store said no.
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

/// Returns the delay after this many failures in a row.
pub(super) fn backoff(failures: u32, cx: &mut Cx<'_>) -> Duration {
    cx.entropy.jitter((INITIAL_POLL_DELAY * (1 << failures.min(8))).min(cx.settings.poll_interval))
}

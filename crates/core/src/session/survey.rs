//! Survey of all locks: totals, and the locks that an operator looks at first.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use super::Sessions;
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Token};

/// Totals of all locks of this daemon, and the first locks by several orders.
/// [`Sessions::survey`] adds a part of the table at a time, so that a survey of many
/// locks does not delay grants.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Number of sessions.
    pub sessions: usize,
    /// Locks with a holder, a waiter or a pending call.
    pub locks: usize,
    /// Locks that a session of this daemon holds.
    pub held: usize,
    /// Waiting acquires.
    pub waiting: usize,
    /// Waiting acquires of elections, which are included in `waiting`.
    pub candidates: usize,
    /// Longest time that a waiter has waited, without candidates of elections.
    pub oldest_lock_wait: Option<Duration>,
    /// Elections that have a candidate and no leader.
    pub leaderless: usize,
    /// Locks whose grant is at risk.
    pub at_risk: usize,
    /// Longest time that a waiter has waited.
    pub oldest_wait: Option<Duration>,
    /// Locks by the time that they are held, longest first.
    pub longest_held: Vec<LockSummary>,
    /// Locks by the number of waiters, most first.
    pub longest_queues: Vec<LockSummary>,
    /// Locks whose grant is at risk, least time first.
    pub most_at_risk: Vec<LockSummary>,
    /// Maximum length of each list.
    limit: usize,
    next: Option<usize>,
}

/// Main numbers of a lock.
#[derive(Clone, Debug)]
pub struct LockSummary {
    /// Name of the lock.
    pub name: LockName,
    /// Holder, if a session of this daemon holds the lock.
    pub holder: Option<Arc<Holder>>,
    /// Token of the grant.
    pub token: Option<Token>,
    /// Time since the grant.
    pub held_for: Option<Duration>,
    /// Time until the grant ends, unless its session and its lease are extended.
    pub time_left: Option<Duration>,
    /// Number of waiters.
    pub waiting: usize,
    /// Time that the first waiter has waited.
    pub longest_wait: Option<Duration>,
    /// True if the grant is at risk.
    pub is_at_risk: bool,
    /// True if the holder leads an election, or the first waiter is a candidate.
    pub is_election: bool,
    /// True if a peer held the lock at the last attempt to acquire its lease.
    pub is_held_by_peer: bool,
}

impl Survey {
    /// Creates an empty survey, with lists of at most `limit` locks.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            sessions: 0,
            locks: 0,
            held: 0,
            waiting: 0,
            candidates: 0,
            oldest_lock_wait: None,
            leaderless: 0,
            at_risk: 0,
            oldest_wait: None,
            longest_held: Vec::new(),
            longest_queues: Vec::new(),
            most_at_risk: Vec::new(),
            limit,
            next: Some(0),
        }
    }

    /// Returns whether the survey includes the whole table.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.next.is_none()
    }
}

impl Sessions {
    /// Adds the next part of the table, at most `count` places.
    pub fn survey(&self, survey: &mut Survey, count: usize, now: Moment) {
        let Some(from) = survey.next else { return };
        let (glances, next) = self.locks.glance(from, count, now);
        for glance in glances {
            let view = glance.grant.and_then(|_| self.grant_view(glance.lock, now));
            let is_leader = view.is_some_and(|view| view.is_leader);
            let is_leaderless =
                glance.grant.is_none() && glance.has_candidate && !glance.is_held_by_peer;
            let is_active = glance.grant.is_some_and(|grant| grant.is_active());
            let is_at_risk = glance.is_at_risk && is_active;
            survey.held += usize::from(glance.grant.is_some());
            survey.waiting += glance.waiting;
            if glance.has_candidate {
                survey.candidates += glance.waiting;
            } else {
                survey.oldest_lock_wait = survey.oldest_lock_wait.max(glance.longest_wait);
            }
            survey.leaderless += usize::from(is_leaderless);
            survey.at_risk += usize::from(is_at_risk);
            survey.oldest_wait = survey.oldest_wait.max(glance.longest_wait);
            let held_for = glance.grant.map(|grant| now.since(grant.since));
            let time_left = view.map(|view| view.time_left);
            let summary = || LockSummary {
                name: glance.name.clone(),
                holder: glance.grant.map(|grant| Arc::clone(&grant.holder)),
                token: glance.grant.map(|grant| grant.token),
                held_for,
                time_left,
                waiting: glance.waiting,
                longest_wait: glance.longest_wait,
                is_at_risk,
                is_election: is_leader || glance.has_candidate,
                is_held_by_peer: glance.is_held_by_peer,
            };
            let limit = survey.limit;
            if held_for.is_some() {
                insert(&mut survey.longest_held, limit, Reverse(held_for), summary, |lock| {
                    Reverse(lock.held_for)
                });
            }
            if glance.waiting > 0 {
                insert(
                    &mut survey.longest_queues,
                    limit,
                    Reverse(glance.waiting),
                    summary,
                    |lock| Reverse(lock.waiting),
                );
            }
            if is_at_risk {
                insert(&mut survey.most_at_risk, limit, time_left, summary, |lock| lock.time_left);
            }
        }
        (survey.sessions, survey.locks) = self.counts();
        survey.next = next;
    }
}

/// Inserts a lock into a list that is ordered by `key_of`, unless the list is full of
/// lower keys.
fn insert<K: Ord>(
    list: &mut Vec<LockSummary>,
    limit: usize,
    key: K,
    summary: impl Fn() -> LockSummary,
    key_of: impl Fn(&LockSummary) -> K,
) {
    if list.len() >= limit && list.last().is_none_or(|last| key_of(last) <= key) {
        return;
    }
    let at = list.partition_point(|lock| key_of(lock) <= key);
    list.insert(at, summary());
    list.truncate(limit);
}

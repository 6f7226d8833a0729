//! Poll schedule and last known state of watched locks that a peer may hold. One poll
//! per lock and interval, for any number of watchers. Sans-IO.

use std::{sync::Arc, time::Duration};

use crate::schedule::Schedule;
use leasehold_store::LeaseInfo;
use leasehold_time::{Entropy, HashMap, Moment};
use leasehold_types::{LockName, Token};

/// Watched locks, the times of their polls, and their last known state.
#[derive(Debug)]
pub struct PollSchedule {
    locks: HashMap<LockName, Entry>,
    schedule: Schedule<LockName>,
    interval: Duration,
    entropy: Entropy,
    /// Number of updates of the known states.
    generation: u64,
}

#[derive(Debug, Default)]
struct Entry {
    watchers: usize,
    /// Last known state. None if no daemon held the lock, or if this daemon has it.
    known: Option<Arc<LeaseInfo>>,
    armed: Option<Moment>,
    /// Generation of the last update. Results of reads that were sent before are out of
    /// date.
    generation: u64,
    /// Result of the latest poll for a waiter. The same result is not recorded twice.
    waiter_poll: Option<Arc<LeaseInfo>>,
    /// Highest token that this daemon granted. A stored leader with this token or a
    /// lower one is out of date once this daemon has released the lock.
    granted: Option<Token>,
}

impl PollSchedule {
    /// Creates an empty schedule with this poll interval.
    #[must_use]
    pub fn new(interval: Duration, entropy: Entropy) -> Self {
        Self {
            locks: HashMap::default(),
            schedule: Schedule::default(),
            interval,
            entropy,
            generation: 0,
        }
    }

    /// Adds a watcher of a lock. `granted` is the token that this daemon has granted.
    pub fn add(&mut self, name: &LockName, granted: Option<Token>, now: Moment) {
        let entry = self.locks.entry(name.clone()).or_default();
        entry.watchers += 1;
        entry.granted = entry.granted.max(granted);
        self.rearm(name, now);
    }

    /// Removes a watcher of a lock.
    pub fn remove(&mut self, name: &LockName) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        entry.watchers -= 1;
        if entry.watchers == 0 {
            self.schedule.rearm(name.clone(), &mut entry.armed, None);
            self.locks.remove(name);
        }
    }

    /// Returns the time of the next poll.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.schedule.next()
    }

    /// Returns a lock whose poll is due. It is not due again before
    /// [`Self::record_poll`] or [`Self::record_failed_poll`].
    pub fn pop(&mut self, now: Moment) -> Option<LockName> {
        let name = self.schedule.pop(now)?;
        if let Some(entry) = self.locks.get_mut(&name) {
            entry.armed = None;
        }
        Some(name)
    }

    /// Records the result of a poll that was sent in generation `since`. Reports
    /// whether it differs from the known state.
    pub fn record_poll(
        &mut self,
        name: &LockName,
        info: Option<Arc<LeaseInfo>>,
        since: u64,
        now: Moment,
    ) -> bool {
        self.rearm(name, now);
        self.generation += 1;
        let Some(entry) = self.locks.get_mut(name) else { return false };
        // Of two concurrent reads, either may be the older one.
        if entry.generation > since {
            return false;
        }
        let info = info.filter(|info| info.held && !entry.is_over(info));
        let has_changed = !equal_except_time(entry.known.as_deref(), info.as_deref());
        entry.known = info;
        entry.generation = self.generation;
        has_changed
    }

    /// Records that a poll failed, or was not needed.
    pub fn record_failed_poll(&mut self, name: &LockName, now: Moment) {
        self.rearm(name, now);
    }

    /// Records that this daemon has the lock, and has granted it with this token. The
    /// known state is out of date.
    pub fn invalidate(&mut self, name: &LockName, granted: Option<Token>) {
        self.generation += 1;
        if let Some(entry) = self.locks.get_mut(name) {
            entry.known = None;
            entry.waiter_poll = None;
            entry.generation = self.generation;
            entry.granted = entry.granted.max(granted);
        }
    }

    /// Records the holder that a poll for a waiter found. The poll was sent in
    /// generation `since`.
    pub fn record_waiter_poll(&mut self, name: &LockName, info: &Arc<LeaseInfo>, since: u64) {
        self.generation += 1;
        let Some(entry) = self.locks.get_mut(name) else { return };
        let waiter_poll = entry.waiter_poll.replace(Arc::clone(info));
        if waiter_poll.is_some_and(|known| Arc::ptr_eq(&known, info)) || entry.generation > since {
            return;
        }
        entry.known = Some(Arc::clone(info)).filter(|info| info.held && !entry.is_over(info));
        entry.generation = self.generation;
    }

    /// Returns whether this equals the known state.
    #[must_use]
    pub fn matches(&self, name: &LockName, info: &LeaseInfo) -> bool {
        self.known(name).is_some_and(|known| equal_except_time(Some(known), Some(info)))
    }

    /// Returns whether the lock has a watcher, so that [`Self::known`] is up to date.
    #[must_use]
    pub fn is_watched(&self, name: &LockName) -> bool {
        self.locks.contains_key(name)
    }

    /// Returns the current generation, to be read before a poll is sent.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the last known state, if the lock was held.
    #[must_use]
    pub fn known(&self, name: &LockName) -> Option<&LeaseInfo> {
        self.locks.get(name)?.known.as_deref()
    }

    fn rearm(&mut self, name: &LockName, now: Moment) {
        let wait = self.entropy.jitter(self.interval);
        if let Some(entry) = self.locks.get_mut(name)
            && entry.armed.is_none()
        {
            self.schedule.rearm(name.clone(), &mut entry.armed, Some(now + wait));
        }
    }
}

impl Entry {
    /// Returns whether this daemon granted the leader's token or a higher one.
    fn is_over(&self, info: &LeaseInfo) -> bool {
        info.leader.is_some_and(|leader| self.granted.is_some_and(|granted| leader <= granted))
    }
}

/// Compares two states without the hold time, which always changes.
fn equal_except_time(one: Option<&LeaseInfo>, other: Option<&LeaseInfo>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let comparable = |info: &LeaseInfo| LeaseInfo { held_for: None, ..info.clone() };
            comparable(one) == comparable(other)
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn held(name: &LockName, seconds: u64, value: &[u8]) -> Option<Arc<LeaseInfo>> {
        Some(Arc::new(LeaseInfo {
            held: true,
            held_for: Some(Duration::from_secs(seconds)),
            value: Some(value.into()),
            ..LeaseInfo::free(name.clone())
        }))
    }

    #[test]
    fn lock_is_polled_once_per_interval_for_all_watchers() {
        let mut polls = PollSchedule::new(INTERVAL, Entropy::seeded(1));
        let name = LockName::parse("", "a").unwrap();
        for _ in 0..3 {
            polls.add(&name, None, at(10));
        }
        assert_eq!(polls.pop(at(11)), None);
        assert_eq!(polls.pop(at(12)), Some(name.clone()));
        assert_eq!(polls.pop(at(99)), None, "a poll is in flight");
        assert!(polls.record_poll(&name, held(&name, 5, b"x"), u64::MAX, at(12)));
        assert_eq!(polls.pop(at(14)), Some(name.clone()));
        assert!(
            !polls.record_poll(&name, held(&name, 7, b"x"), u64::MAX, at(14)),
            "only time has passed"
        );
        assert_eq!(polls.pop(at(16)), Some(name.clone()));
        assert!(polls.record_poll(&name, held(&name, 9, b"y"), u64::MAX, at(16)));
        for _ in 0..3 {
            polls.remove(&name);
        }
        assert_eq!(polls.next_due(), None);
    }

    #[test]
    fn known_state_is_dropped_when_daemon_has_the_lock() {
        let mut polls = PollSchedule::new(INTERVAL, Entropy::seeded(1));
        let name = LockName::parse("", "a").unwrap();
        polls.add(&name, None, at(10));
        assert!(polls.record_poll(&name, held(&name, 5, b"x"), u64::MAX, at(12)));
        assert!(polls.known(&name).is_some());
        polls.invalidate(&name, None);
        assert!(polls.known(&name).is_none());
        assert!(!polls.record_poll(&name, None, u64::MAX, at(14)));
    }

    #[test]
    fn overlapping_reads_do_not_restore_older_state() {
        let mut polls = PollSchedule::new(INTERVAL, Entropy::seeded(1));
        let name = LockName::parse("", "a").unwrap();
        polls.add(&name, None, at(10));
        let (first, second) = (polls.generation(), polls.generation());
        assert!(polls.record_poll(&name, held(&name, 5, b"new"), second, at(11)));
        assert!(!polls.record_poll(&name, held(&name, 4, b"old"), first, at(12)));
        // The result of a waiter's poll that was sent before does not replace it either.
        polls.record_waiter_poll(&name, &held(&name, 4, b"old").unwrap(), first);
        let value = |polls: &PollSchedule| polls.known(&name).unwrap().value.clone();
        assert_eq!(value(&polls).as_deref(), Some(b"new".as_slice()));
        // A newer result replaces it, but only once.
        let newer = held(&name, 6, b"newer").unwrap();
        let since = polls.generation();
        polls.record_waiter_poll(&name, &newer, since);
        assert_eq!(value(&polls).as_deref(), Some(b"newer".as_slice()));
        let since = polls.generation();
        assert!(polls.record_poll(&name, held(&name, 7, b"newest"), since, at(13)));
        let since = polls.generation();
        polls.record_waiter_poll(&name, &newer, since);
        assert_eq!(value(&polls).as_deref(), Some(b"newest".as_slice()));
    }

    #[test]
    fn leader_replaced_by_own_grant_is_not_reported_again() {
        let mut polls = PollSchedule::new(INTERVAL, Entropy::seeded(1));
        let name = LockName::parse("", "a").unwrap();
        let led = |token: u64| {
            let info = LeaseInfo::clone(&held(&name, 5, b"x").unwrap());
            Some(Arc::new(LeaseInfo { leader: Token::from_stored(token), ..info }))
        };
        polls.add(&name, None, at(10));
        polls.invalidate(&name, Token::from_stored(7));
        // A second watcher starts after this daemon has granted the lock again.
        polls.add(&name, Token::from_stored(8), at(10));
        for former in [6, 7, 8] {
            let since = polls.generation();
            polls.record_poll(&name, led(former), since, at(11));
            assert!(polls.known(&name).is_none());
        }
        let since = polls.generation();
        polls.record_poll(&name, led(9), since, at(12));
        assert!(polls.known(&name).is_some());
    }
}

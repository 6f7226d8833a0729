//! Polls of watched locks that peers may hold: when each is due, and what the last
//! one found. Sans-IO.

use std::{sync::Arc, time::Duration};

use crate::schedule::Schedule;
use leasehold_store::LeaseInfo;
use leasehold_time::{Entropy, HashMap, Moment};
use leasehold_types::{LockName, Token};

/// Watched locks, and the times of their polls.
#[derive(Debug)]
pub struct PollSchedule {
    locks: HashMap<LockName, Entry>,
    schedule: Schedule<LockName>,
    interval: Duration,
    entropy: Entropy,
    /// Counts how often this daemon knew better.
    generation: u64,
}

#[derive(Debug, Default)]
struct Entry {
    watchers: usize,
    /// None if nobody held it then, or this daemon has known better since.
    known: Option<Arc<LeaseInfo>>,
    armed: Option<Moment>,
    /// When this was waiter_poll: reads that were sent before are out of date.
    generation: u64,
    /// The last that was waiter_poll otherwise, which is not waiter_poll again.
    waiter_poll: Option<Arc<LeaseInfo>>,
    /// Highest token that this daemon granted itself. Once the lock is not ours any more,
    /// that leader is over, whatever the storage still says.
    granted: Option<Token>,
}

impl PollSchedule {
    /// Nothing is watched. Whatever will be is looked at this often.
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

    /// One more watches a lock, which this daemon has granted with this token.
    pub fn add(&mut self, name: &LockName, granted: Option<Token>, now: Moment) {
        let entry = self.locks.entry(name.clone()).or_default();
        entry.watchers += 1;
        entry.granted = entry.granted.max(granted);
        self.rearm(name, now);
    }

    /// One watches it no more.
    pub fn remove(&mut self, name: &LockName) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        entry.watchers -= 1;
        if entry.watchers == 0 {
            self.schedule.rearm(name.clone(), &mut entry.armed, None);
            self.locks.remove(name);
        }
    }

    /// When to look next.
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

    /// Records what a poll found that was sent after generation `since`. Reports
    /// whether that differs from what was known.
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
        // Of two reads at the same time, either may be the older one.
        if entry.generation > since {
            return false;
        }
        let info = info.filter(|info| info.held && !entry.is_over(info));
        let news = !equal_except_time(entry.known.as_deref(), info.as_deref());
        entry.known = info;
        entry.generation = self.generation;
        news
    }

    /// Records that a poll failed, or was not needed.
    pub fn record_failed_poll(&mut self, name: &LockName, now: Moment) {
        self.rearm(name, now);
    }

    /// This daemon has the lock itself, and has granted it with this token: what was known
    /// before is out of date.
    pub fn invalidate(&mut self, name: &LockName, granted: Option<Token>) {
        self.generation += 1;
        if let Some(entry) = self.locks.get_mut(name) {
            entry.known = None;
            entry.waiter_poll = None;
            entry.generation = self.generation;
            entry.granted = entry.granted.max(granted);
        }
    }

    /// This daemon has found out otherwise who holds the lock, by a read that was sent
    /// after this generation.
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

    /// Whether this is what was known last.
    #[must_use]
    pub fn matches(&self, name: &LockName, info: &LeaseInfo) -> bool {
        self.known(name).is_some_and(|known| equal_except_time(Some(known), Some(info)))
    }

    /// Whether somebody watches the lock, so that [`Self::known`] is the latest that is known.
    #[must_use]
    pub fn is_watched(&self, name: &LockName) -> bool {
        self.locks.contains_key(name)
    }

    /// Returns the current generation, to be read before a poll is sent.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// What was known last, if somebody held it.
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
    /// Whether this daemon granted this leader's token, or a higher one, itself.
    fn is_over(&self, info: &LeaseInfo) -> bool {
        info.leader.is_some_and(|leader| self.granted.is_some_and(|granted| leader <= granted))
    }
}

/// For how long it has been held changes all the time.
fn equal_except_time(one: Option<&LeaseInfo>, other: Option<&LeaseInfo>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let what = |info: &LeaseInfo| LeaseInfo { held_for: None, ..info.clone() };
            what(one) == what(other)
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
    fn each_lock_is_looked_at_once_in_a_while_however_many_watch() {
        let mut polls = PollSchedule::new(INTERVAL, Entropy::seeded(1));
        let name = LockName::parse("", "a").unwrap();
        for _ in 0..3 {
            polls.add(&name, None, at(10));
        }
        assert_eq!(polls.pop(at(11)), None);
        assert_eq!(polls.pop(at(12)), Some(name.clone()));
        assert_eq!(polls.pop(at(99)), None, "a look is under way");
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
    fn what_this_daemon_knows_better_is_forgotten() {
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
    fn overlapping_reads_do_not_bring_back_an_older_state() {
        let mut polls = PollSchedule::new(INTERVAL, Entropy::seeded(1));
        let name = LockName::parse("", "a").unwrap();
        polls.add(&name, None, at(10));
        let (first, second) = (polls.generation(), polls.generation());
        assert!(polls.record_poll(&name, held(&name, 5, b"new"), second, at(11)));
        assert!(!polls.record_poll(&name, held(&name, 4, b"old"), first, at(12)));
        // Nor does what a waiter's poll found, which was sent before.
        polls.record_waiter_poll(&name, &held(&name, 4, b"old").unwrap(), first);
        let value = |polls: &PollSchedule| polls.known(&name).unwrap().value.clone();
        assert_eq!(value(&polls).as_deref(), Some(b"new".as_slice()));
        // A later one is waiter_poll once.
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
    fn leader_replaced_by_own_grant_is_not_shown_again() {
        let mut polls = PollSchedule::new(INTERVAL, Entropy::seeded(1));
        let name = LockName::parse("", "a").unwrap();
        let led = |token: u64| {
            let info = LeaseInfo::clone(&held(&name, 5, b"x").unwrap());
            Some(Arc::new(LeaseInfo { leader: Token::from_stored(token), ..info }))
        };
        polls.add(&name, None, at(10));
        polls.invalidate(&name, Token::from_stored(7));
        // A second watcher begins while this daemon has granted the lock again.
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

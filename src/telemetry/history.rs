//! History: the recent events of each lock, within a limit for all locks.
//!
//! A lock keeps its last [`MAX_EVENTS_PER_LOCK`] events, so that a busy lock does not
//! displace the events of a quiet one. If all locks together exceed the limit, the
//! locks without recent events are forgotten first: there are two generations, and a
//! lock moves to the young one with each event.

use std::{cmp::Ordering, collections::VecDeque, mem, sync::Arc, time::Duration};

use leasehold_core::journal::{Entry, Fact};
use leasehold_time::{HashMap, Moment};
use leasehold_types::{Holder, LockName};

/// Maximum number of events that are kept of one lock.
pub const MAX_EVENTS_PER_LOCK: usize = 50;

/// Length of the periods in which grants are counted.
const PERIOD: Duration = Duration::from_secs(60);

/// Recent events of each lock.
#[derive(Debug, Default)]
pub struct History {
    max_events: usize,
    young: Generation,
    old: Generation,
    /// Number of the last event.
    last: u64,
}

#[derive(Debug, Default)]
struct Generation {
    locks: HashMap<LockName, LockHistory>,
    events: usize,
}

/// Events of one lock.
#[derive(Debug, Default)]
struct LockHistory {
    events: VecDeque<Event>,
    grants: GrantCount,
}

/// Grants of a lock in the current period, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct GrantCount {
    period: u64,
    current: u32,
    previous: u32,
}

/// Event of a lock.
#[derive(Clone, Debug)]
pub struct Event {
    /// Number of the event, which increases with every event of this daemon.
    pub number: u64,
    /// Time of the event.
    pub at: Moment,
    /// Description of the client that the event is about, if there is one.
    pub holder: Option<Arc<Holder>>,
    /// The event.
    pub fact: Fact,
}

impl History {
    /// Creates a history of at most this many events; 0 turns it off.
    #[must_use]
    pub fn new(max_events: usize) -> Self {
        Self { max_events, ..Self::default() }
    }

    /// Returns whether events are kept.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.max_events > 0
    }

    /// Keeps an entry of the journal. Successful calls to the store are left out,
    /// because they would displace other events.
    pub fn record(&mut self, entry: Entry, now: Moment) {
        if !self.is_enabled() || is_routine(&entry.fact) {
            return;
        }
        self.last += 1;
        let Entry { name, holder, fact, .. } = entry;
        let is_grant = matches!(fact, Fact::Granted { .. });
        let event = Event { number: self.last, at: now, holder, fact };
        let lock = match self.young.locks.get_mut(&name) {
            Some(lock) => lock,
            None => {
                let moved = self.old.locks.remove(&name).unwrap_or_default();
                self.old.events -= moved.events.len();
                self.young.events += moved.events.len();
                self.young.locks.entry(name).or_insert(moved)
            }
        };
        if lock.events.len() == MAX_EVENTS_PER_LOCK {
            lock.events.pop_front();
            self.young.events -= 1;
        }
        lock.events.push_back(event);
        self.young.events += 1;
        if is_grant {
            lock.grants.add(now);
        }
        if self.young.events > self.max_events / 2 {
            self.old = mem::take(&mut self.young);
        }
    }

    /// Returns the last events of a lock, oldest first.
    pub fn of(&self, name: &LockName) -> impl DoubleEndedIterator<Item = &Event> {
        self.find(name).into_iter().flat_map(|lock| &lock.events)
    }

    /// Returns the last events of all locks, oldest first.
    #[must_use]
    pub fn recent(&self, limit: usize) -> Vec<(LockName, Event)> {
        let mut found: Vec<_> = self
            .locks()
            .flat_map(|(name, lock)| lock.events.iter().map(move |event| (name, event)))
            .collect();
        keep_first(&mut found, limit, |one, other| other.1.number.cmp(&one.1.number));
        let events = found.into_iter().rev();
        events.map(|(name, event)| (name.clone(), event.clone())).collect()
    }

    /// Returns the locks with the most grants in the last one to two minutes, most first.
    #[must_use]
    pub fn busiest(&self, limit: usize, now: Moment) -> Vec<(LockName, u32)> {
        let mut counts: Vec<_> = self
            .locks()
            .map(|(name, lock)| (name, lock.grants.recent(now)))
            .filter(|(_, grants)| *grants > 0)
            .collect();
        let busier = |one: &(&LockName, u32), other: &(&LockName, u32)| {
            other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0))
        };
        keep_first(&mut counts, limit, busier);
        counts.into_iter().map(|(name, grants)| (name.clone(), grants)).collect()
    }

    fn find(&self, name: &LockName) -> Option<&LockHistory> {
        self.young.locks.get(name).or_else(|| self.old.locks.get(name))
    }

    fn locks(&self) -> impl Iterator<Item = (&LockName, &LockHistory)> {
        self.young.locks.iter().chain(&self.old.locks)
    }
}

impl GrantCount {
    fn add(&mut self, now: Moment) {
        self.advance(now);
        self.current = self.current.saturating_add(1);
    }

    fn recent(mut self, now: Moment) -> u32 {
        self.advance(now);
        self.current.saturating_add(self.previous)
    }

    fn advance(&mut self, now: Moment) {
        let period = now.since(Moment::from_boot(Duration::ZERO)).as_secs() / PERIOD.as_secs();
        if period != self.period {
            self.previous = if period == self.period + 1 { self.current } else { 0 };
            (self.period, self.current) = (period, 0);
        }
    }
}

/// Keeps the first items in this order.
fn keep_first<T>(items: &mut Vec<T>, limit: usize, order: impl Fn(&T, &T) -> Ordering) {
    if limit > 0 && items.len() > limit {
        items.select_nth_unstable_by(limit - 1, &order);
    }
    items.truncate(limit);
    items.sort_unstable_by(order);
}

/// Returns whether the fact is a routine success, which is counted elsewhere.
const fn is_routine(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::LeaseAcquired { .. } | Fact::Renewed { .. } | Fact::LeaseReleased | Fact::Ignored
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn queued(name: &str) -> Entry {
        let name = LockName::parse("", name).unwrap();
        Entry { name, holder: None, trace: None, fact: Fact::Queued }
    }

    fn numbers(history: &History, name: &str) -> Vec<u64> {
        history.of(&LockName::parse("", name).unwrap()).map(|event| event.number).collect()
    }

    #[test]
    fn busy_lock_does_not_displace_quiet_lock() {
        let mut history = History::new(1000);
        history.record(queued("quiet"), at(1));
        for _ in 0..100_000 {
            history.record(queued("busy"), at(1));
        }
        assert_eq!(numbers(&history, "quiet"), [1]);
        assert_eq!(numbers(&history, "busy").len(), MAX_EVENTS_PER_LOCK);
        assert_eq!(numbers(&history, "busy").last(), Some(&100_001));
    }

    #[test]
    fn locks_without_recent_events_are_forgotten_first() {
        let mut history = History::new(1000);
        for number in 0..5000 {
            history.record(queued("kept"), at(1));
            history.record(queued(&number.to_string()), at(1));
            assert!(history.young.events + history.old.events <= 1001);
        }
        assert!(numbers(&history, "0").is_empty());
        assert_eq!(numbers(&history, "kept").len(), MAX_EVENTS_PER_LOCK);
        let recent = history.recent(3);
        let recent: Vec<_> = recent.iter().map(|(_, event)| event.number).collect();
        assert_eq!(recent, [9998, 9999, 10_000]);
    }

    #[test]
    fn disabled_history_keeps_nothing() {
        let mut history = History::new(0);
        history.record(queued("a"), at(1));
        assert!(numbers(&history, "a").is_empty() && history.recent(10).is_empty());
    }

    #[test]
    fn grants_are_counted_for_two_periods() {
        let mut count = GrantCount::default();
        count.add(at(59));
        count.add(at(61));
        assert_eq!(
            (count.recent(at(119)), count.recent(at(120)), count.recent(at(180))),
            (2, 1, 0)
        );
    }
}

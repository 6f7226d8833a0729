//! Timer queue: one ordered set of deadlines per kind of entity, instead of a task
//! or timer per lock and session.

use std::collections::BTreeSet;

use leasehold_time::Moment;

/// Timers, ordered by deadline.
#[derive(Debug)]
pub struct Schedule<K> {
    due: BTreeSet<(Moment, K)>,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { due: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Schedule<K> {
    /// Replaces the deadline of `key`. The caller stores `armed`, the current
    /// deadline, so that it is not stored twice.
    pub fn rearm(&mut self, key: K, armed: &mut Option<Moment>, due: Option<Moment>) {
        if *armed == due {
            return;
        }
        if let Some(old) = armed.take() {
            self.due.remove(&(old, key.clone()));
        }
        if let Some(new) = due {
            self.due.insert((new, key));
            *armed = due;
        }
    }

    /// Returns the earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Moment> {
        self.due.first().map(|(moment, _)| *moment)
    }

    /// Removes and returns the key with the earliest deadline, if it is due.
    pub fn pop(&mut self, now: Moment) -> Option<K> {
        let (moment, _) = self.due.first()?;
        if *moment > now {
            return None;
        }
        self.due.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn rearmed_key_is_due_once_and_in_order() {
        let mut schedule = Schedule::default();
        let (mut a, mut b) = (None, None);
        schedule.rearm('a', &mut a, Some(at(5)));
        schedule.rearm('b', &mut b, Some(at(4)));
        schedule.rearm('a', &mut a, Some(at(3)));
        assert_eq!(schedule.next(), Some(at(3)));
        assert_eq!(schedule.pop(at(2)), None);
        assert_eq!(schedule.pop(at(9)), Some('a'));
        schedule.rearm('b', &mut b, None);
        assert_eq!(schedule.pop(at(9)), None);
        assert_eq!(schedule.next(), None);
    }
}

//! What is due when: one ordered set for everything of a kind, so that neither
//! a lock nor a session needs a task or a timer of its own.

use std::collections::BTreeSet;

use leasehold_time::Moment;

/// Deadlines in the order in which they fall due.
#[derive(Debug)]
pub struct Schedule<K> {
    due: BTreeSet<(Moment, K)>,
}

/// Nothing is due.
impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { due: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Schedule<K> {
    /// Replaces the moment at which `key` is due. The caller remembers `armed`,
    /// so that nothing is kept twice.
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

    /// The earliest.
    #[must_use]
    pub fn next(&self) -> Option<Moment> {
        self.due.first().map(|(moment, _)| *moment)
    }

    /// Takes the earliest if its moment has come.
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
    fn what_is_rearmed_is_due_once_and_in_order() {
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

//! Last break of each broken lock, until the daemon restarts.

use std::collections::{BTreeMap, VecDeque};

use leasehold_store::Breaker;
use leasehold_types::LockName;

/// Maximum number of recorded breaks; the oldest is dropped first.
const MAX_BREAKS: usize = 1024;

/// Last breaks by lock.
#[derive(Default)]
pub(super) struct Breaks {
    by_name: BTreeMap<LockName, Breaker>,
    /// Oldest first.
    order: VecDeque<LockName>,
}

impl Breaks {
    pub(super) fn add(&mut self, name: &LockName, breaker: Breaker) {
        if self.by_name.insert(name.clone(), breaker).is_some() {
            self.order.retain(|known| known != name);
        }
        self.order.push_back(name.clone());
        if self.order.len() > MAX_BREAKS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_name.remove(&oldest);
        }
    }

    pub(super) fn of(&self, name: &LockName) -> Option<&Breaker> {
        self.by_name.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_break_is_dropped_first() {
        let name = |number: usize| LockName::parse("", &format!("lock-{number}")).unwrap();
        let by = |by: &str| Breaker { by: by.into(), reason: "stuck".into() };
        let mut breaks = Breaks::default();
        for number in 0..MAX_BREAKS {
            breaks.add(&name(number), by("first"));
        }
        breaks.add(&name(0), by("second"));
        assert_eq!(breaks.of(&name(0)), Some(&by("second")));
        assert_eq!(breaks.of(&name(1)), Some(&by("first")));
        breaks.add(&name(MAX_BREAKS), by("third"));
        assert_eq!(breaks.of(&name(1)), None);
        assert!(breaks.of(&name(0)).is_some() && breaks.of(&name(MAX_BREAKS)).is_some());
        assert_eq!((breaks.by_name.len(), breaks.order.len()), (MAX_BREAKS, MAX_BREAKS));
    }
}

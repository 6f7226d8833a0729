//! Collection of violations, limited to [`MAX_VIOLATIONS`].

use std::fmt;

use crate::{
    Entry, Kind, Nanos,
    format::Seconds,
    index::{Lock, Pos},
};

/// Maximum number of reported violations of one history.
const MAX_VIOLATIONS: usize = 20;

/// Violation of a guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Guarantee that was broken.
    pub kind: Kind,
    /// Time of the violation.
    pub at: Nanos,
    /// Description in one sentence.
    pub what: String,
    /// Entries that prove the violation.
    pub excerpt: Vec<Entry>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.kind, Seconds(self.at), self.what)?;
        for entry in &self.excerpt {
            write!(f, "\n  {entry}")?;
        }
        Ok(())
    }
}

/// Violations found so far. Keeps the earliest ones of each kind.
#[derive(Default)]
pub(crate) struct Report {
    found: Vec<Found>,
    /// Locks with a violation of I1 to I4.
    unsafe_locks: Vec<usize>,
}

struct Found {
    kind: Kind,
    at: Nanos,
    what: String,
    excerpt: Vec<Pos>,
}

impl Report {
    /// Adds a violation. Calls `what` only if the violation is kept.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        at: Nanos,
        excerpt: impl IntoIterator<Item = Pos>,
        what: impl FnOnce() -> String,
    ) {
        let same = || self.found.iter().enumerate().filter(|(_, found)| found.kind == kind);
        let slot = if same().count() < MAX_VIOLATIONS {
            self.found.len()
        } else {
            match same().max_by_key(|(_, found)| found.at) {
                Some((last, found)) if found.at > at => last,
                _ => return,
            }
        };
        let mut excerpt: Vec<Pos> = excerpt.into_iter().collect();
        excerpt.sort_unstable();
        excerpt.dedup();
        let found = Found { kind, at, what: what(), excerpt };
        match self.found.get_mut(slot) {
            Some(later) => *later = found,
            None => self.found.push(found),
        }
    }

    /// Records a violation of I1 to I4 for this lock.
    pub(crate) fn distrust(&mut self, lock: usize) {
        self.unsafe_locks.push(lock);
    }

    /// Returns the locks without a violation of I1 to I4.
    pub(crate) fn trusted<'i>(&self, locks: &'i [Lock]) -> impl Iterator<Item = usize> + use<'i> {
        let mut trusted = vec![true; locks.len()];
        for &lock in &self.unsafe_locks {
            trusted[lock] = false;
        }
        (0..locks.len()).filter(move |&lock| trusted[lock])
    }

    /// Returns the first violation of each kind, then the others; both parts by time.
    pub(crate) fn violations(mut self, entries: &[Entry]) -> Vec<Violation> {
        self.found.sort_by_key(|found| (found.at, found.kind));
        let mut seen = Vec::new();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for found in self.found {
            let new = !seen.contains(&found.kind);
            seen.push(found.kind);
            let excerpt = found.excerpt.iter().map(|&pos| entries[pos].clone()).collect();
            let Found { kind, at, what, .. } = found;
            let to = if new { &mut first } else { &mut rest };
            to.push(Violation { kind, at, what, excerpt });
        }
        first.append(&mut rest);
        first.truncate(MAX_VIOLATIONS);
        first
    }
}

//! What is found, and how much of it is told.

use std::fmt;

use crate::{
    Entry, Kind, Nanos,
    format::Seconds,
    index::{Lock, Pos},
};

/// How many violations of one history are told.
const MOST: usize = 20;

/// Something that must not happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which guarantee was broken.
    pub kind: Kind,
    /// When it was.
    pub at: Nanos,
    /// What happened, in a sentence.
    pub what: String,
    /// The few entries that show it.
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

/// What has been found so far. Of each kind, the earliest are kept.
#[derive(Default)]
pub(crate) struct Report {
    found: Vec<Found>,
    /// Locks for which I1 to I4 found something.
    unsafe_locks: Vec<usize>,
}

struct Found {
    kind: Kind,
    at: Nanos,
    what: String,
    excerpt: Vec<Pos>,
}

impl Report {
    /// `what` is only called if this is one of those that are told.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        at: Nanos,
        excerpt: impl IntoIterator<Item = Pos>,
        what: impl FnOnce() -> String,
    ) {
        let same = || self.found.iter().enumerate().filter(|(_, found)| found.kind == kind);
        let room = if same().count() < MOST {
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
        match self.found.get_mut(room) {
            Some(place) => *place = found,
            None => self.found.push(found),
        }
    }

    /// I1 to I4 found something for this lock.
    pub(crate) fn distrust(&mut self, lock: usize) {
        self.unsafe_locks.push(lock);
    }

    /// The locks for which I1 to I4 found nothing.
    pub(crate) fn trusted<'i>(&self, locks: &'i [Lock]) -> impl Iterator<Item = usize> + use<'i> {
        let mut trusted = vec![true; locks.len()];
        for &lock in &self.unsafe_locks {
            trusted[lock] = false;
        }
        (0..locks.len()).filter(move |&lock| trusted[lock])
    }

    /// The first of each kind first, then the others, each by time.
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
        first.truncate(MOST);
        first
    }
}

//! Search of locks by name: one page of the locks that have a holder or a waiter.

use std::collections::BTreeSet;

use super::Sessions;
use leasehold_time::Moment;
use leasehold_types::{LockName, Namespace};

/// Locks that a search selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockFilter {
    /// Namespace; `None` for all namespaces.
    pub namespace: Option<Namespace>,
    /// Prefix of the names within their namespace.
    pub prefix: String,
    /// Last name of the page before.
    pub after: Option<LockName>,
    /// Further condition.
    pub kind: LockKind,
}

/// Condition on the state of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockKind {
    /// Any lock with a holder or a waiter.
    #[default]
    All,
    /// The holder leads an election, or the first waiter is a candidate.
    Elections,
    /// The lock has waiters.
    WithWaiters,
    /// The grant is at risk.
    AtRisk,
}

/// Search that is in progress. [`Sessions::search`] adds a part of the table at a time,
/// so that a search in many locks does not delay grants.
#[derive(Clone, Debug)]
pub struct Search {
    filter: LockFilter,
    limit: usize,
    names: BTreeSet<LockName>,
    total: usize,
    has_more: bool,
    next: Option<usize>,
}

impl Search {
    /// Creates a search for a page of at most `limit` locks.
    #[must_use]
    pub const fn new(filter: LockFilter, limit: usize) -> Self {
        Self { filter, limit, names: BTreeSet::new(), total: 0, has_more: false, next: Some(0) }
    }

    /// Returns whether the whole table was searched.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.next.is_none()
    }

    /// Names of the page, in order.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.names.iter()
    }

    /// Returns the number of selected locks on all pages.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// Returns whether selected locks follow the page.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.has_more
    }

    fn covers(&self, name: &LockName) -> bool {
        let LockFilter { namespace, prefix, .. } = &self.filter;
        namespace.as_ref().is_none_or(|namespace| namespace.as_str() == name.namespace())
            && name.name().starts_with(prefix)
    }

    fn add(&mut self, name: &LockName) {
        self.total += 1;
        if self.filter.after.as_ref().is_some_and(|after| name <= after) {
            return;
        }
        let is_full = self.names.len() >= self.limit;
        self.has_more |= is_full;
        if is_full && self.names.last().is_none_or(|last| name > last) {
            return;
        }
        self.names.insert(name.clone());
        if is_full {
            self.names.pop_last();
        }
    }
}

impl Sessions {
    /// Searches the next part of the table, at most `count` places.
    pub fn search(&self, search: &mut Search, count: usize, now: Moment) {
        let Some(from) = search.next else { return };
        let (glances, next) = self.locks.glance(from, count, now);
        for glance in glances {
            let is_selected = match search.filter.kind {
                LockKind::All => glance.grant.is_some() || glance.waiting > 0,
                LockKind::Elections => {
                    glance.grant.is_some_and(|grant| grant.value.is_some()) || glance.has_candidate
                }
                LockKind::WithWaiters => glance.waiting > 0,
                LockKind::AtRisk => glance.is_at_risk && glance.grant.is_some(),
            };
            if is_selected && search.covers(glance.name) {
                search.add(glance.name);
            }
        }
        search.next = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(after: Option<&str>, limit: usize) -> (Vec<String>, usize, bool) {
        let after = after.map(|after| LockName::parse("", after).unwrap());
        let filter = LockFilter { prefix: "a".to_owned(), after, ..LockFilter::default() };
        let mut search = Search::new(filter, limit);
        for name in ["a3", "b", "a1", "a4", "a2", "c"] {
            let name = LockName::parse("", name).unwrap();
            if search.covers(&name) {
                search.add(&name);
            }
        }
        let names = search.names().map(|name| name.name().to_owned()).collect();
        (names, search.total(), search.has_more())
    }

    #[test]
    fn page_has_the_first_names_in_order() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(page(None, 2), (names(&["a1", "a2"]), 4, true));
        assert_eq!(page(Some("a2"), 2), (names(&["a3", "a4"]), 4, false));
        assert_eq!(page(Some("a4"), 2), (names(&[]), 4, false));
        assert_eq!(page(None, 4), (names(&["a1", "a2", "a3", "a4"]), 4, false));
    }
}

//! Watchers: subscriptions to changes of locks, and in [`PollSchedule`] the polls of
//! locks that peers may hold. A slow reader gets the latest state of each lock that
//! changed, not a backlog.

mod polls;

use std::{
    collections::BTreeSet,
    task::{Context, Poll, Waker},
};

pub use polls::PollSchedule;
use slab::Slab;

use crate::error::RequestError;
use leasehold_time::HashMap;
use leasehold_types::{
    Reason,
    name::{LockName, Namespace},
};

/// Maximum number of changed locks that a reader has not read; beyond it the watch
/// ends.
const MAX_PENDING_CHANGES: usize = 10_000;

/// Maximum number of watches of single locks.
const MAX_WATCHERS: usize = 10_000;

/// Maximum number of watches of prefixes; each is compared with every change.
const MAX_PREFIXES: usize = 256;

/// Locks of a watch.
#[derive(Clone, Debug)]
pub enum Target {
    /// One lock.
    Name(LockName),
    /// All locks of a namespace whose names begin with this prefix.
    Prefix(Namespace, String),
}

impl Target {
    fn covers(&self, name: &LockName) -> bool {
        match self {
            Self::Name(only) => only == name,
            Self::Prefix(namespace, prefix) => name.matches_prefix(namespace.as_str(), prefix),
        }
    }
}

/// Number of a watch.
pub type WatchId = usize;

/// All watches.
#[derive(Debug, Default)]
pub struct Watches {
    watchers: Slab<Watcher>,
    by_name: HashMap<LockName, Vec<WatchId>>,
    prefixes: Vec<WatchId>,
}

#[derive(Debug)]
struct Watcher {
    target: Target,
    changed: BTreeSet<LockName>,
    waker: Option<Waker>,
    /// Set when the watch ends: the error, until the reader has received it.
    end: Option<Option<RequestError>>,
}

impl Watches {
    /// Starts a watch.
    pub fn add(&mut self, target: Target) -> Result<WatchId, RequestError> {
        let (count, most) = match &target {
            Target::Name(_) => (self.watchers.len() - self.prefixes.len(), MAX_WATCHERS),
            Target::Prefix(..) => (self.prefixes.len(), MAX_PREFIXES),
        };
        if count >= most {
            let message =
                format!("watch refused: the daemon has reached {most} watches of this kind");
            return Err(RequestError::new(Reason::Limit, message));
        }
        let slot = self.watchers.vacant_entry();
        match &target {
            Target::Name(name) => self.by_name.entry(name.clone()).or_default().push(slot.key()),
            Target::Prefix(..) => self.prefixes.push(slot.key()),
        }
        let watch = slot.key();
        slot.insert(Watcher { target, changed: BTreeSet::new(), waker: None, end: None });
        Ok(watch)
    }

    /// Ends a watch.
    pub fn remove(&mut self, watch: WatchId) {
        let Some(watcher) = self.watchers.try_remove(watch) else { return };
        match watcher.target {
            Target::Name(name) => {
                if let Some(watches) = self.by_name.get_mut(&name) {
                    watches.retain(|other| *other != watch);
                    if watches.is_empty() {
                        self.by_name.remove(&name);
                    }
                }
            }
            Target::Prefix(..) => self.prefixes.retain(|other| *other != watch),
        }
    }

    /// Records that a lock has changed.
    pub fn changed(&mut self, name: &LockName) {
        if self.watchers.is_empty() {
            return;
        }
        let by_name = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        for watch in by_name.iter().chain(&self.prefixes) {
            let Some(watcher) = self.watchers.get_mut(*watch) else { continue };
            if watcher.target.covers(name) && watcher.end.is_none() {
                if watcher.changed.len() >= MAX_PENDING_CHANGES {
                    let message = format!(
                        "the watch fell {MAX_PENDING_CHANGES} changed locks behind: start it \
                         again, or watch fewer locks"
                    );
                    watcher.changed.clear();
                    watcher.end = Some(Some(RequestError::new(Reason::Limit, message)));
                } else {
                    watcher.changed.insert(name.clone());
                }
                watcher.wake();
            }
        }
    }

    /// Ends all watches.
    pub fn end(&mut self, problem: &RequestError) {
        for (_, watcher) in &mut self.watchers {
            watcher.end = Some(Some(problem.clone()));
            watcher.wake();
        }
    }

    /// Returns the next changed lock; none once the watch has ended.
    pub fn poll_changed(
        &mut self,
        watch: WatchId,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<LockName, RequestError>>> {
        let Some(watcher) = self.watchers.get_mut(watch) else { return Poll::Ready(None) };
        if let Some(name) = watcher.changed.pop_first() {
            return Poll::Ready(Some(Ok(name)));
        }
        match &mut watcher.end {
            Some(end) => Poll::Ready(end.take().map(Err)),
            None => {
                watcher.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Watcher {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> LockName {
        LockName::parse("", name).unwrap()
    }

    fn next(watches: &mut Watches, watch: WatchId) -> Poll<Option<Result<LockName, RequestError>>> {
        watches.poll_changed(watch, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn repeated_changes_are_reported_once() {
        let mut watches = Watches::default();
        let namespace = Namespace::parse("").unwrap();
        let watch = watches.add(Target::Prefix(namespace, "a".into())).unwrap();
        for changed in ["a1", "b", "a2", "a1"] {
            watches.changed(&name(changed));
        }
        watches.changed(&LockName::parse("other", "a1").unwrap());
        assert_eq!(next(&mut watches, watch), Poll::Ready(Some(Ok(name("a1")))));
        assert_eq!(next(&mut watches, watch), Poll::Ready(Some(Ok(name("a2")))));
        assert_eq!(next(&mut watches, watch), Poll::Pending);
    }

    #[test]
    fn slow_reader_is_ended_with_a_reason() {
        let mut watches = Watches::default();
        let namespace = Namespace::parse("").unwrap();
        let watch = watches.add(Target::Prefix(namespace, String::new())).unwrap();
        for n in 0..=MAX_PENDING_CHANGES {
            watches.changed(&name(&n.to_string()));
        }
        let Poll::Ready(Some(Err(problem))) = next(&mut watches, watch) else { panic!() };
        assert_eq!(problem.reason, Reason::Limit);
        assert_eq!(next(&mut watches, watch), Poll::Ready(None));
    }
}

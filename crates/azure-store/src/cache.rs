//! What this process remembers of locks that it has seen, so that it need not
//! read them again, and notices when an old state comes back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use azure_core::http::Etag;

use crate::protocol::record::Record;
use leasehold_store::{Breaker, LeaseId, Value};
use leasehold_time::HashMap;
use leasehold_types::LockName;

/// How many locks a generation has. Two are kept.
const GENERATION: usize = 1 << 16;

/// What is remembered of a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedLock {
    /// The version of the blob that was seen last, and what it holds.
    pub(crate) version: Option<(Etag, Record)>,
    /// The version at which nobody had the lease: what it says is over.
    pub(crate) over: Option<Etag>,
    /// The greatest token that was ever seen with it.
    pub(crate) highest: u64,
    /// The value at a version.
    pub(crate) value: Option<(Etag, Value)>,
    /// Version that this process wrote last, under its own lease. While the blob
    /// has this version, no daemon has been granted the lock since.
    pub(crate) written: Option<Etag>,
    /// Our own hold, if there is one, and its first token.
    pub(crate) hold: Option<(LeaseId, u64)>,
    /// A break that is yet to be noted with it.
    pub(crate) unnoted: Option<Breaker>,
}

/// What is remembered, of a limited number of locks: those that were not
/// touched for long are forgotten.
#[derive(Default)]
pub(crate) struct LockCache(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<LockName, CachedLock>,
    old: HashMap<LockName, CachedLock>,
}

impl LockCache {
    /// What is known of a lock.
    pub(crate) fn get(&self, name: &LockName) -> Option<CachedLock> {
        let generations = self.generations();
        generations.young.get(name).or_else(|| generations.old.get(name)).cloned()
    }

    /// The blob was seen so. If that is older than what was seen before, another
    /// look is needed.
    pub(crate) fn saw(&self, name: &LockName, etag: &Etag, record: &Record) {
        self.change(name, |known| {
            let newest = record.token == 0 || record.token >= known.highest;
            known.highest = known.highest.max(record.token);
            known.version = newest.then(|| (etag.clone(), record.clone()));
        });
    }

    /// The blob may be different by now, or gone.
    pub(crate) fn invalidate(&self, name: &LockName) {
        self.change(name, |known| known.version = None);
    }

    /// Changes what is known of a lock.
    pub(crate) fn change(&self, name: &LockName, change: impl FnOnce(&mut CachedLock)) {
        let mut generations = self.generations();
        let Generations { young, old } = &mut *generations;
        if !young.contains_key(name) {
            if young.len() >= GENERATION {
                *old = std::mem::take(young);
            }
            let known = old.remove(name).unwrap_or_default();
            young.insert(name.clone(), known);
        }
        if let Some(known) = young.get_mut(name) {
            change(known);
        }
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_kept_and_the_rest_is_forgotten_in_time() {
        let memory = LockCache::default();
        let name = |n: usize| LockName::parse("", &format!("lock-{n}")).unwrap();
        memory.change(&name(0), |known| known.highest = 7);
        for n in 1..3 * GENERATION {
            memory.change(&name(n), |known| known.highest = 1);
            if n % 1000 == 0 {
                memory.change(&name(0), |_| {});
            }
        }
        assert_eq!(memory.get(&name(0)).unwrap().highest, 7);
        assert!(memory.get(&name(1)).is_none());
        let generations = memory.generations();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION);
    }
}

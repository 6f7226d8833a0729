//! Cache of the records that this process has seen: saves reads, and detects
//! records that went back to an earlier state.

use std::sync::{Mutex, MutexGuard, PoisonError};

use azure_core::http::Etag;

use crate::protocol::record::Record;
use leasehold_store::{Breaker, LeaseId, Value};
use leasehold_time::HashMap;
use leasehold_types::LockName;

/// Maximum number of locks in a generation. The cache has two generations.
const GENERATION_CAPACITY: usize = 1 << 16;

/// Cached facts about a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedLock {
    /// Latest version of the blob that this process has read or written, and its
    /// record.
    pub(crate) version: Option<(Etag, Record)>,
    /// Version at which the blob had no lease: its hold has ended.
    pub(crate) over: Option<Etag>,
    /// Highest token that this process has seen with the lock.
    pub(crate) highest: u64,
    /// Leader's value at a version.
    pub(crate) value: Option<(Etag, Value)>,
    /// Version that this process wrote last, under its own lease. While the blob
    /// has this version, no daemon has been granted the lock since.
    pub(crate) written: Option<Etag>,
    /// Hold of this daemon, if there is one, and its first token.
    pub(crate) hold: Option<(LeaseId, u64)>,
    /// Break that is not recorded with the lock yet.
    pub(crate) unrecorded: Option<Breaker>,
}

/// Cache of a limited number of locks. Evicts locks that were not used for long.
#[derive(Default)]
pub(crate) struct LockCache(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<LockName, CachedLock>,
    old: HashMap<LockName, CachedLock>,
}

impl LockCache {
    /// Returns the cached facts about a lock.
    pub(crate) fn get(&self, name: &LockName) -> Option<CachedLock> {
        let generations = self.generations();
        generations.young.get(name).or_else(|| generations.old.get(name)).cloned()
    }

    /// Stores a version that was read or written. An earlier state than one that
    /// was seen before is not kept: the blob must be read again.
    pub(crate) fn saw(&self, name: &LockName, etag: &Etag, record: &Record) {
        self.change(name, |cached| {
            let newest = record.token == 0 || record.token >= cached.highest;
            cached.highest = cached.highest.max(record.token);
            cached.version = newest.then(|| (etag.clone(), record.clone()));
        });
    }

    /// Forgets the version: the blob may have changed, or may be gone.
    pub(crate) fn invalidate(&self, name: &LockName) {
        self.change(name, |cached| cached.version = None);
    }

    /// Changes the cached facts about a lock.
    pub(crate) fn change(&self, name: &LockName, change: impl FnOnce(&mut CachedLock)) {
        let mut generations = self.generations();
        let Generations { young, old } = &mut *generations;
        if !young.contains_key(name) {
            if young.len() >= GENERATION_CAPACITY {
                *old = std::mem::take(young);
            }
            let cached = old.remove(name).unwrap_or_default();
            young.insert(name.clone(), cached);
        }
        if let Some(cached) = young.get_mut(name) {
            change(cached);
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
    fn unused_locks_are_evicted() {
        let cache = LockCache::default();
        let name = |n: usize| LockName::parse("", &format!("lock-{n}")).unwrap();
        cache.change(&name(0), |cached| cached.highest = 7);
        for n in 1..3 * GENERATION_CAPACITY {
            cache.change(&name(n), |cached| cached.highest = 1);
            if n % 1000 == 0 {
                cache.change(&name(0), |_| {});
            }
        }
        assert_eq!(cache.get(&name(0)).unwrap().highest, 7);
        assert!(cache.get(&name(1)).is_none());
        let generations = cache.generations();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION_CAPACITY);
    }
}

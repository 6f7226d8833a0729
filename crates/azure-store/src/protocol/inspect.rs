//! Reads for peers, clients and operators: the holder of a lock, its value, and
//! the list of locks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{frozen::frozen, path, record::Record};
use crate::{
    AzureStore, READ_TIMEOUT,
    calls::{CallOptions, blob::BlobState, fault::Fault, limiter::Purpose},
};
use leasehold_store::{Error, LeaseInfo, Page, Value};
use leasehold_types::{LockName, Token};

/// Maximum number of reads of a value that changes all the time.
const MAX_VALUE_READS: usize = 4;

impl AzureStore {
    /// Implements [`LeaseStore::inspect`](leasehold_store::LeaseStore::inspect).
    pub(crate) async fn inspect_lease(&self, name: LockName) -> Result<Option<LeaseInfo>, Error> {
        let options = CallOptions { purpose: Purpose::Inspect, timeout: READ_TIMEOUT };
        let path = self.path(&name);
        for _ in 0..MAX_VALUE_READS {
            let state = match self.shared.blobs.read(&path, options).await {
                Ok(state) => self.without_ended_hold(&name, state),
                Err(Fault::NoBlob) => return Ok(None),
                Err(fault) => return Err(fault.into_error()),
            };
            // A lease is reported even if its record is invalid.
            if let Err(invalid) = &state.record
                && !state.leased
            {
                return Err(frozen(&path, &invalid.0));
            }
            match self.value(&name, &path, &state, options).await {
                Ok(value) => return Ok(Some(self.info(name, state, value))),
                Err(Fault::Changed | Fault::NoBlob) => {}
                Err(fault) => return Err(fault.into_error()),
            }
        }
        let why = format!("the value of {name} changes faster than it can be read");
        Err(Error::Unavailable { why, retry_after: None })
    }

    /// Removes the holder from a record of an earlier hold. A daemon that acquires a
    /// lease writes its record a moment later. If this version was seen without a
    /// lease before, the hold that wrote it has ended.
    pub(crate) fn without_ended_hold(&self, name: &LockName, mut state: BlobState) -> BlobState {
        let cached = self.shared.cache.get(name).and_then(|cached| cached.over);
        let over = cached.is_some_and(|over| over == state.etag);
        if !state.leased && !over {
            let etag = state.etag.clone();
            self.shared.cache.change(name, |cached| cached.over = Some(etag));
        }
        if state.leased
            && over
            && let Ok(record) = &mut state.record
        {
            let broken = record.broken.take();
            *record = Record { broken, ..Record::default() };
        }
        state
    }

    /// Returns the holder of a lease just read; none if a leader's value is
    /// unavailable, because a leader is never reported without it.
    pub(crate) async fn held_by(
        &self,
        name: &LockName,
        mut state: BlobState,
        options: CallOptions,
    ) -> Option<Arc<LeaseInfo>> {
        let path = self.path(name);
        for _ in 0..MAX_VALUE_READS {
            state = self.without_ended_hold(name, state);
            match self.value(name, &path, &state, options).await {
                Ok(value) => return Some(Arc::new(self.info(name.clone(), state, value))),
                Err(Fault::Changed | Fault::NoBlob) => {
                    state = self.shared.blobs.read(&path, options).await.ok()?;
                }
                Err(_) => return None,
            }
        }
        None
    }

    /// Returns the leader's value at the version that was read. Fetches each version
    /// once.
    async fn value(
        &self,
        name: &LockName,
        path: &str,
        state: &BlobState,
        options: CallOptions,
    ) -> Result<Option<Value>, Fault> {
        let Some(record) = state.record.as_ref().ok().filter(|_| state.leased) else {
            return Ok(None);
        };
        if record.leader.is_none() {
            return Ok(None);
        }
        if record.bytes == 0 {
            return Ok(Some(Value::default()));
        }
        let cached = self.shared.cache.get(name).and_then(|cached| cached.value);
        if let Some((_, value)) = cached.filter(|(etag, _)| *etag == state.etag) {
            return Ok(Some(value));
        }
        let value = self.shared.blobs.content(path, record.bytes, &state.etag, options).await?;
        let kept = (state.etag.clone(), Arc::clone(&value));
        self.shared.cache.change(name, |cached| cached.value = Some(kept));
        Ok(Some(value))
    }

    /// Returns the description of a lease.
    fn info(&self, name: LockName, state: BlobState, value: Option<Value>) -> LeaseInfo {
        let location = Some(self.path(&name));
        let record = state.record.ok();
        let held = record.as_ref().filter(|_| state.leased);
        let now = state.date.unwrap_or_else(|| self.shared.blobs.service_seconds());
        LeaseInfo {
            name,
            held: state.leased,
            holder: held.and_then(|record| record.holder.clone()),
            tokens: held.and_then(|record| record.tokens()),
            leader: held.and_then(|record| Token::from_stored(record.leader?)),
            value,
            daemon: held
                .filter(|record| !record.daemon.is_empty())
                .map(|record| record.daemon.as_str().into()),
            endpoint: held.and_then(|record| record.endpoint.clone()).map(Arc::new),
            held_for: held
                .filter(|record| record.since > 0)
                .map(|record| Duration::from_secs(now.saturating_sub(record.since))),
            broken: record.and_then(|record| record.broken),
            location,
        }
    }

    /// Implements [`LeaseStore::list`](leasehold_store::LeaseStore::list).
    pub(crate) async fn list_leases(&self, wanted: &Page) -> Result<Vec<LeaseInfo>, Error> {
        let options = CallOptions { purpose: Purpose::Inspect, timeout: READ_TIMEOUT };
        let root = &self.shared.prefix;
        let start = match &wanted.namespace {
            Some(namespace) => path::beginning(root, namespace.as_str(), &wanted.prefix),
            None => path::root(root),
        };
        // Paths are not in the order of names: all are read, and the first ones in the
        // order of names are kept.
        let mut found = BTreeMap::new();
        let mut marker = None;
        loop {
            let page = self.shared.blobs.list(&start, marker, options).await;
            let (page, next) = page.map_err(Fault::into_error)?;
            for listed in page {
                let Some(name) = path::lock(&self.shared.prefix, &listed.path) else { continue };
                if listed.state.leased && wanted.contains(&name) {
                    found.insert(name, listed.state);
                    if found.len() > wanted.limit {
                        found.pop_last();
                    }
                }
            }
            match next {
                Some(next) => marker = Some(next),
                None => break,
            }
        }
        Ok(found.into_iter().map(|(name, state)| self.info(name, state, None)).collect())
    }
}

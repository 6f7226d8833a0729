//! What others see of a hold: who leads with which value, and who broke it.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};

use super::{
    amend::{Written, frozen},
    record::Record,
};
use crate::{
    AzureStore, LOOK, MIN_LEASE_DURATION,
    calls::{
        blob::{BlobState, CallOptions},
        fault::Fault,
        limiter::Purpose,
    },
};
use leasehold_runtime::sleep;
use leasehold_store::{Breaker, Error, LeaseId, LeaseInfo, Publication, Publish, Value};
use leasehold_types::{LockName, Token};

/// How often a value is asked for that changes all the time.
const MAX_ATTEMPTS: usize = 4;

/// How often it is tried again to note a break: for some minutes.
const NOTES: usize = 10;

impl AzureStore {
    /// See [`LeaseStore::publish`](leasehold_store::LeaseStore::publish).
    pub(crate) async fn publish_hold(
        &self,
        name: LockName,
        id: LeaseId,
        publication: Publication,
    ) -> Result<Publish, Error> {
        let attempt = self.attempt(&name, Some(id), Purpose::Show, MIN_LEASE_DURATION);
        let Publication { holder, token, held_for, value } = publication;
        let since = self.shared.blobs.service_seconds().saturating_sub(held_for.as_secs());
        let amended = self.amend_latest(&attempt, |record, _| {
            record.holder = Some(Arc::clone(&holder));
            record.leader = value.is_some().then_some(token.get());
            record.since = since;
            Ok(value.clone().or_else(|| (record.bytes > 0).then(Value::default)))
        });
        match amended.await {
            Ok(Written::Stored(_)) => Ok(Publish::Published),
            Ok(Written::NotOurs(_)) => Ok(Publish::Lost),
            Ok(Written::Unknown(why)) => Ok(Publish::Unknown { why }),
            Err(corrupt) => Err(self.data_loss(&attempt, &corrupt)),
        }
    }

    /// Notes a break unless that is done: after `first`, and for a while again
    /// and again, because it can't be done while somebody else has the lease.
    /// After that it is done with our next hold, if there is one.
    pub(crate) async fn note_later(self, name: LockName, breaker: Breaker, first: Duration) {
        let waits = ExponentialBuilder::default()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(60))
            .with_max_times(NOTES);
        for wait in std::iter::once(first).chain(waits.build()) {
            sleep(wait).await;
            let known = self.shared.memory.get(&name);
            if known.and_then(|known| known.unnoted).as_ref() != Some(&breaker) {
                return;
            }
            _ = self.note(name.clone(), breaker.clone(), None).await;
        }
    }

    /// Notes a break with a lock, under our lease or none. If it is somebody
    /// else's by now, it is not noted.
    pub(crate) async fn note(
        &self,
        name: LockName,
        breaker: Breaker,
        id: Option<LeaseId>,
    ) -> Result<(), Error> {
        let attempt = self.attempt(&name, id, Purpose::Break, MIN_LEASE_DURATION);
        let amended = self.amend_latest(&attempt, |record, _| {
            if id.is_none() {
                // Who held it does so no more, also at the version that this makes.
                *record = Record { token: record.token, bytes: record.bytes, ..Record::default() };
            }
            record.broken = Some(breaker.clone());
            Ok(None)
        });
        match amended.await {
            Ok(Written::Stored(_) | Written::NotOurs(_)) => Ok(()),
            Ok(Written::Unknown(why)) => Err(Error::Unavailable { why, retry_after: None }),
            Err(corrupt) => Err(self.data_loss(&attempt, &corrupt)),
        }
    }

    /// See [`LeaseStore::inspect`](leasehold_store::LeaseStore::inspect).
    pub(crate) async fn look_at(&self, name: LockName) -> Result<Option<LeaseInfo>, Error> {
        let why = CallOptions { cause: Purpose::Look, limit: LOOK };
        let path = self.path(&name);
        for _ in 0..MAX_ATTEMPTS {
            let seen = match self.shared.blobs.read(&path, why).await {
                Ok(seen) => self.unless_over(&name, seen),
                Err(Fault::NoBlob) => return Ok(None),
                Err(fault) => return Err(fault.into_error()),
            };
            // While somebody has the lease, that is what matters.
            if let Err(garbage) = &seen.record
                && !seen.leased
            {
                return Err(frozen(&path, &garbage.0));
            }
            match self.value(&name, &path, &seen, why).await {
                Ok(value) => return Ok(Some(self.info(name, seen, value))),
                Err(Fault::Changed | Fault::NoBlob) => {}
                Err(fault) => return Err(fault.into_error()),
            }
        }
        let why = format!("the value of {name} changes faster than it can be read");
        Err(Error::Unavailable { why, retry_after: None })
    }

    /// Whoever acquires a lease writes its record a moment later. Until then the
    /// record is that of an earlier hold, whose end was seen if the same version
    /// was seen without a lease.
    pub(crate) fn unless_over(&self, name: &LockName, mut seen: BlobState) -> BlobState {
        let known = self.shared.memory.get(name).and_then(|known| known.over);
        let over = known.is_some_and(|over| over == seen.etag);
        if !seen.leased && !over {
            let etag = seen.etag.clone();
            self.shared.memory.change(name, |known| known.over = Some(etag));
        }
        if seen.leased
            && over
            && let Ok(record) = &mut seen.record
        {
            let broken = record.broken.take();
            *record = Record { broken, ..Record::default() };
        }
        seen
    }

    /// Who holds a lease that was just seen; none if a leader's value can't be
    /// had, because a leader is not shown without it.
    pub(crate) async fn held_by(
        &self,
        name: &LockName,
        mut seen: BlobState,
        why: CallOptions,
    ) -> Option<Arc<LeaseInfo>> {
        let path = self.path(name);
        for _ in 0..MAX_ATTEMPTS {
            seen = self.unless_over(name, seen);
            match self.value(name, &path, &seen, why).await {
                Ok(value) => return Some(Arc::new(self.info(name.clone(), seen, value))),
                Err(Fault::Changed | Fault::NoBlob) => {
                    seen = self.shared.blobs.read(&path, why).await.ok()?;
                }
                Err(_) => return None,
            }
        }
        None
    }

    /// The value at the version that was seen. Fetched once for each version.
    async fn value(
        &self,
        name: &LockName,
        path: &str,
        seen: &BlobState,
        why: CallOptions,
    ) -> Result<Option<Value>, Fault> {
        let Some(record) = seen.record.as_ref().ok().filter(|_| seen.leased) else {
            return Ok(None);
        };
        if record.leader.is_none() {
            return Ok(None);
        }
        if record.bytes == 0 {
            return Ok(Some(Value::default()));
        }
        let known = self.shared.memory.get(name).and_then(|known| known.value);
        if let Some((_, value)) = known.filter(|(etag, _)| *etag == seen.etag) {
            return Ok(Some(value));
        }
        let value = self.shared.blobs.content(path, record.bytes, &seen.etag, why).await?;
        let kept = (seen.etag.clone(), Arc::clone(&value));
        self.shared.memory.change(name, |known| known.value = Some(kept));
        Ok(Some(value))
    }

    pub(crate) fn info(&self, name: LockName, seen: BlobState, value: Option<Value>) -> LeaseInfo {
        let place = Some(self.path(&name));
        let record = seen.record.ok();
        let held = record.as_ref().filter(|_| seen.leased);
        let now = seen.date.unwrap_or_else(|| self.shared.blobs.service_seconds());
        LeaseInfo {
            name,
            held: seen.leased,
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
            place,
        }
    }
}

//! Acquisition of a lease, and of durable tokens (safety rules 2, 3, 6 and 7).
//!
//! Two calls if the blob's version is cached: the lease, whose answer has the
//! version, and the record. Otherwise a read is sent along with the lease. An
//! unknown outcome is returned as such: then the lease is released under its ID,
//! which is never used again.

use std::{sync::Arc, time::Duration};

use super::{
    amend::{AmendContext, AmendError, Amendment, Written},
    record::Record,
};
use crate::{
    AzureStore, MIN_LEASE_DURATION,
    calls::{
        CallOptions,
        blob::{BlobState, Leased},
        fault::Fault,
        limiter::Purpose,
    },
};
use leasehold_rules::{
    NoToken, TOKENS_PER_HOLD, TokenBasis, call_timeout, lease_deadline, next_token,
};
use leasehold_store::{
    Acquire, AcquireParams, Acquired, Error, LeaseId, LeaseInfo, Release, Value,
};
use leasehold_time::{Moment, clock};
use leasehold_types::{LockName, TokenRange};

const NEW_WITHOUT_CLOCK: &str = "the lock is new, and the storage clock, at which its tokens \
    begin, is more than a day ahead of this machine's: correct the clock of this machine";

const STORED_WITHOUT_CLOCK: &str = "the storage clock is more than a day ahead of this \
    machine's, and without it an old record can't be distinguished from the latest one: correct \
    the clock of this machine";

/// Maximum number of attempts to create a blob that another process deletes again.
const MAX_CREATE_ATTEMPTS: u32 = 3;

/// Outcome of the acquisition of a lease.
enum LeaseOutcome {
    /// Acquired. The instant is when the first attempt was sent that may have
    /// succeeded.
    Acquired(Moment, Leased),
    /// Held by a peer.
    Held { by: Option<Arc<LeaseInfo>> },
}

impl AzureStore {
    /// Implements [`LeaseStore::acquire`](leasehold_store::LeaseStore::acquire).
    pub(crate) async fn acquire_lease(&self, claim: AcquireParams) -> Result<Acquire, Error> {
        if claim.is_retry
            && let Some(held) = self.poll_before_acquire(&claim).await?
        {
            return Ok(held);
        }
        let mut amendment =
            self.amendment(&claim.name, Some(claim.id), Purpose::Grant, claim.duration);
        let (sent, leased) = match self.lease(&amendment, claim.id, claim.duration).await {
            Ok(LeaseOutcome::Acquired(sent, leased)) => (sent, leased),
            Ok(LeaseOutcome::Held { by }) => return Ok(Acquire::Held { by }),
            Err(fault) if fault.is_unknown() || matches!(fault, Fault::NotOurs { .. }) => {
                return Ok(Acquire::Unknown { why: fault.why() });
            }
            Err(fault) => return Err(fault.into_error()),
        };
        // From here on the lease is running.
        amendment.until = sent + claim.duration / 2;
        let now = leased.date.unwrap_or_else(|| self.shared.blobs.service_seconds());
        let written = self.amend(&amendment, leased, |record, context| {
            next_hold(record, context)?;
            record.holder = Some(Arc::clone(&claim.holder));
            record.leader = claim.value.is_some().then_some(record.token);
            record.since = now;
            Ok(claim.value.clone().or_else(|| (record.bytes > 0).then(Value::default)))
        });
        match written.await {
            Ok(Written::Stored(record)) => {
                let tokens = TokenRange::from(record.token, TOKENS_PER_HOLD);
                self.shared.cache.change(&claim.name, |cached| {
                    cached.hold = Some((claim.id, record.token));
                });
                let deadline = Some(lease_deadline(sent, claim.duration));
                Ok(Acquire::Acquired(Acquired { tokens, deadline }))
            }
            Ok(Written::NotOurs(why)) => Ok(Acquire::Unknown { why: why.to_owned() }),
            Ok(Written::Unknown(why)) => Ok(Acquire::Unknown { why }),
            Err(corrupt) => {
                self.release_frozen(&amendment, claim.id).await;
                Err(self.data_loss(&claim.name, &amendment.path, &corrupt))
            }
        }
    }

    /// Implements [`LeaseStore::next_tokens`](leasehold_store::LeaseStore::next_tokens).
    pub(crate) async fn more_tokens(&self, name: LockName, id: LeaseId) -> Result<Acquire, Error> {
        let amendment = self.amendment(&name, Some(id), Purpose::Grant, MIN_LEASE_DURATION);
        let amended = self.amend_latest(&amendment, |record, context| {
            next_hold(record, context)?;
            Ok(None)
        });
        match amended.await {
            Ok(Written::Stored(record)) => {
                let tokens = TokenRange::from(record.token, TOKENS_PER_HOLD);
                Ok(Acquire::Acquired(Acquired { tokens, deadline: None }))
            }
            Ok(Written::NotOurs(_)) => Ok(Acquire::Held { by: None }),
            Ok(Written::Unknown(why)) => Ok(Acquire::Unknown { why }),
            Err(corrupt) => Err(self.data_loss(&name, &amendment.path, &corrupt)),
        }
    }

    /// Polls a lease, held a moment ago and most likely still held. A read
    /// returns the lease state and the holder for a fraction of the price of an
    /// acquisition.
    async fn poll_before_acquire(&self, claim: &AcquireParams) -> Result<Option<Acquire>, Error> {
        if let Some(retry_after) = self.shared.blobs.limiter.throttled_for() {
            return Err(Fault::Busy { retry_after: Some(retry_after) }.into_error());
        }
        let path = self.path(&claim.name);
        let options = CallOptions { purpose: Purpose::Poll, timeout: call_timeout(claim.duration) };
        match self.shared.blobs.read(&path, options).await {
            Ok(state) if state.leased => {
                Ok(Some(Acquire::Held { by: self.held_by(&claim.name, state, options).await }))
            }
            Ok(state) => {
                let state = self.without_ended_hold(&claim.name, state);
                if let Ok(record) = &state.record {
                    self.shared.cache.saw(&claim.name, &state.etag, record);
                }
                Ok(None)
            }
            Err(Fault::NoBlob) => {
                self.shared.cache.invalidate(&claim.name);
                Ok(None)
            }
            Err(fault) => Err(fault.into_error()),
        }
    }

    /// Acquires the lease, and creates the blob if it does not exist.
    async fn lease(
        &self,
        amendment: &Amendment<'_>,
        id: LeaseId,
        duration: Duration,
    ) -> Result<LeaseOutcome, Fault> {
        let Amendment { name, path, options, .. } = amendment;
        let cached = self.shared.cache.get(name).is_some_and(|cached| cached.version.is_some());
        // When the first attempt was sent that may have succeeded.
        let mut possibly_since = None;
        let (mut must_read, mut read) = (!cached, None);
        let (mut retries, mut creations) = (self.retries(), 0);
        loop {
            let (sent, leased) = if std::mem::take(&mut must_read) {
                let (leased, state) = self.lease_and_read(amendment, id, duration).await;
                read = state;
                leased
            } else {
                self.shared.blobs.acquire(path, id, duration, *options).await
            };
            match leased {
                Ok(leased) => {
                    return Ok(LeaseOutcome::Acquired(possibly_since.unwrap_or(sent), leased));
                }
                Err(Fault::Held) => {
                    return self.held(amendment, id, possibly_since.is_some(), read).await;
                }
                Err(Fault::NoBlob) if creations < MAX_CREATE_ATTEMPTS => {
                    creations += 1;
                    match self.create(amendment).await {
                        Ok(None) => {}
                        Ok(Some(unclear)) => {
                            creations -= 1;
                            if !retries.wait(amendment.until).await {
                                return Err(unclear);
                            }
                        }
                        Err(fault) => return Err(unknown_if_retried(fault, possibly_since)),
                    }
                }
                Err(fault) if fault.is_unknown() => {
                    let until = *possibly_since.get_or_insert(sent) + duration / 3;
                    if !retries.wait(until).await {
                        return Err(fault);
                    }
                }
                Err(fault) => return Err(unknown_if_retried(fault, possibly_since)),
            }
        }
    }

    /// Acquires the lease and reads the blob at the same time. The record
    /// read is valid if its version is that of the lease.
    async fn lease_and_read(
        &self,
        amendment: &Amendment<'_>,
        id: LeaseId,
        duration: Duration,
    ) -> ((Moment, Result<Leased, Fault>), Option<BlobState>) {
        let (blobs, Amendment { name, path, options, .. }) = (&self.shared.blobs, amendment);
        let acquire = blobs.acquire(path, id, duration, *options);
        let (leased, state) = tokio::join!(acquire, blobs.read(path, *options));
        if let Ok(BlobState { etag, record: Ok(record), .. }) = &state {
            self.shared.cache.saw(name, etag, record);
        }
        (leased, state.ok())
    }

    /// Returns the holder of a lease that a peer has.
    async fn held(
        &self,
        amendment: &Amendment<'_>,
        id: LeaseId,
        may_be_acquired: bool,
        read: Option<BlobState>,
    ) -> Result<LeaseOutcome, Fault> {
        let Amendment { name, path, options, .. } = amendment;
        // A lease that an earlier attempt acquired may have been broken since, and
        // would keep other daemons out until it expires.
        if may_be_acquired
            && let Release::Unknown { why } = self.release_lease(path, id, *options).await
        {
            return Err(Fault::Unknown { why });
        }
        let state = match read.filter(|state| state.leased) {
            Some(state) => Some(state),
            None => self.shared.blobs.read(path, *options).await.ok(),
        };
        let by = match state {
            Some(state) => self.held_by(name, state, *options).await,
            None => None,
        };
        Ok(LeaseOutcome::Held { by })
    }

    /// Creates the blob, unless another process does so first. Returns a fault if
    /// the outcome is unknown: the acquisition of the lease resolves it.
    async fn create(&self, amendment: &Amendment<'_>) -> Result<Option<Fault>, Fault> {
        self.shared.cache.invalidate(amendment.name);
        let record = Record {
            token: 0,
            nonce: self.nonce(),
            daemon: self.shared.daemon.clone(),
            ..Record::default()
        };
        match self.shared.blobs.create(&amendment.path, &record, amendment.options).await {
            Ok(etag) => {
                self.shared.cache.saw(amendment.name, &etag, &record);
                Ok(None)
            }
            Err(Fault::Changed | Fault::NotOurs { .. }) => Ok(None),
            Err(fault) if fault.is_unknown() => Ok(Some(fault)),
            Err(fault) => Err(fault),
        }
    }

    /// Releases the lease of a frozen lock, on which nothing is granted.
    async fn release_frozen(&self, amendment: &Amendment<'_>, id: LeaseId) {
        let mut retries = self.retries();
        while let Release::Unknown { .. } =
            self.release_lease(&amendment.path, id, amendment.options).await
        {
            if !retries.wait(amendment.until).await {
                break;
            }
        }
    }
}

/// Makes a fault unknown if an earlier attempt may have succeeded, of which the
/// fault of this attempt is no evidence.
fn unknown_if_retried(fault: Fault, possibly_since: Option<Moment>) -> Fault {
    match possibly_since {
        Some(_) => Fault::Unknown { why: fault.why() },
        None => fault,
    }
}

/// Moves a record on to its next tokens.
fn next_hold(record: &mut Record, context: &AmendContext) -> Result<(), AmendError> {
    let AmendContext { date, highest, is_own } = *context;
    let wall = clock::unix_seconds();
    let basis = TokenBasis { stored: record.token, storage_date: date, wall, highest, is_own };
    record.token = next_token(&basis).map_err(|reason| match reason {
        NoToken::NewWithoutClock => AmendError::Otherwise(NEW_WITHOUT_CLOCK.to_owned()),
        NoToken::StoredWithoutClock => AmendError::Otherwise(STORED_WITHOUT_CLOCK.to_owned()),
        NoToken::Exhausted => AmendError::Corrupt("its tokens are used up".to_owned()),
    })?;
    Ok(())
}

//! Acquiring a lease, and making tokens durable (safety rules 2, 3, 6 and 7).
//!
//! Two calls where the blob's version is known: the lease, whose answer names
//! the version, and the record. Where it is not known, the read goes out along
//! with the lease. Whatever stays unclear is answered as unknown: then the
//! lease is released under its id, which is never used again.

use std::{sync::Arc, time::Duration};

use super::{
    amend::{AmendContext, AmendError, Amendment, Written},
    record::{Record, TOKENS_PER_HOLD},
};
use crate::{
    AzureStore, MIN_LEASE_DURATION,
    calls::{
        blob::{BlobState, CallOptions, Leased},
        fault::Fault,
        limiter::Purpose,
    },
    limit,
};
use leasehold_rules::mutant::{self, Mutant};
use leasehold_store::{
    Acquire, AcquireParams, Acquired, Error, LeaseId, LeaseInfo, Release, Value,
};
use leasehold_time::{Moment, clock};
use leasehold_types::{LockName, TokenRange, token::SEQ_BITS};

/// A service's clock that is further ahead of ours than this is absurd.
const MAX_CLOCK_LEAD: u64 = 24 * 60 * 60;

const ABSURD_CLOCK: &str = "the lock is new, and the storage service's clock, at which its tokens \
    begin, is absurdly ahead of this machine's: set the clock of this machine right";

const UNUSABLE_CLOCK: &str = "the storage service's clock is more than a day ahead of this \
    machine's, and without it an old record can't be told from the latest one: correct the clock \
    of this machine";

/// How often a blob is created that somebody deletes again.
const MAX_CREATE_ATTEMPTS: u32 = 3;

/// What became of a lease.
enum LeaseOutcome {
    /// Ours since the first attempt, which was sent then.
    Ours(Moment, Leased),
    /// Another's.
    Held { by: Option<Arc<LeaseInfo>> },
}

impl AzureStore {
    /// See [`LeaseStore::acquire`](leasehold_store::LeaseStore::acquire).
    pub(crate) async fn acquire_lease(&self, claim: AcquireParams) -> Result<Acquire, Error> {
        if claim.again
            && let Some(held) = self.poll_before_acquire(&claim).await?
        {
            return Ok(held);
        }
        let mut attempt = self.attempt(&claim.name, Some(claim.id), Purpose::Grant, claim.duration);
        let (sent, leased) = match self.lease(&attempt, claim.id, claim.duration).await {
            Ok(LeaseOutcome::Ours(sent, leased)) => (sent, leased),
            Ok(LeaseOutcome::Held { by }) => return Ok(Acquire::Held { by }),
            Err(fault) if fault.is_unclear() || matches!(fault, Fault::NotOurs { .. }) => {
                return Ok(Acquire::Unknown { why: fault.why() });
            }
            Err(fault) => return Err(fault.into_error()),
        };
        // From here on the lease is running out.
        attempt.until = sent + claim.duration / 2;
        let now = leased.date.unwrap_or_else(|| self.shared.blobs.service_seconds());
        let written = self.amend(&attempt, leased, |record, basis| {
            next_hold(record, basis)?;
            record.holder = Some(Arc::clone(&claim.holder));
            record.leader = claim.value.is_some().then_some(record.token);
            record.since = now;
            Ok(claim.value.clone().or_else(|| (record.bytes > 0).then(Value::default)))
        });
        match written.await {
            Ok(Written::Stored(record)) => {
                let tokens = TokenRange::from(record.token, TOKENS_PER_HOLD);
                self.shared.memory.change(&claim.name, |known| {
                    known.hold = Some((claim.id, record.token));
                });
                let deadline = Some(deadline(sent, claim.duration));
                Ok(Acquire::Acquired(Acquired { tokens, deadline }))
            }
            Ok(Written::NotOurs(why)) => Ok(Acquire::Unknown { why: why.to_owned() }),
            Ok(Written::Unknown(why)) => Ok(Acquire::Unknown { why }),
            Err(corrupt) => {
                // It was ours to look at, no more.
                let mut retries = self.retries();
                while let Release::Unknown { .. } =
                    self.release_lease(&attempt.path, claim.id, attempt.why).await
                {
                    if !retries.wait(attempt.until).await {
                        break;
                    }
                }
                Err(self.data_loss(&attempt, &corrupt))
            }
        }
    }

    /// See [`LeaseStore::next_tokens`](leasehold_store::LeaseStore::next_tokens).
    pub(crate) async fn more_tokens(&self, name: LockName, id: LeaseId) -> Result<Acquire, Error> {
        let attempt = self.attempt(&name, Some(id), Purpose::Grant, MIN_LEASE_DURATION);
        let amended = self.amend_latest(&attempt, |record, basis| {
            next_hold(record, basis)?;
            Ok(None)
        });
        match amended.await {
            Ok(Written::Stored(record)) => {
                let tokens = TokenRange::from(record.token, TOKENS_PER_HOLD);
                Ok(Acquire::Acquired(Acquired { tokens, deadline: None }))
            }
            Ok(Written::NotOurs(_)) => Ok(Acquire::Held { by: None }),
            Ok(Written::Unknown(why)) => Ok(Acquire::Unknown { why }),
            Err(corrupt) => Err(self.data_loss(&attempt, &corrupt)),
        }
    }

    /// A lease that was held a moment ago most likely still is: a read says
    /// so, and by whom, for a fraction of the price.
    async fn poll_before_acquire(&self, claim: &AcquireParams) -> Result<Option<Acquire>, Error> {
        if let Some(rest) = self.shared.blobs.budget.throttled_for() {
            return Err(Fault::Busy { retry_after: Some(rest) }.into_error());
        }
        let path = self.path(&claim.name);
        let why = CallOptions { cause: Purpose::Poll, limit: limit(claim.duration) };
        match self.shared.blobs.read(&path, why).await {
            Ok(seen) if seen.leased => {
                Ok(Some(Acquire::Held { by: self.held_by(&claim.name, seen, why).await }))
            }
            Ok(seen) => {
                let seen = self.unless_over(&claim.name, seen);
                if let Ok(record) = &seen.record {
                    self.shared.memory.saw(&claim.name, &seen.etag, record);
                }
                Ok(None)
            }
            Err(Fault::NoBlob) => {
                self.shared.memory.invalidate(&claim.name);
                Ok(None)
            }
            Err(fault) => Err(fault.into_error()),
        }
    }

    /// Takes the lease, creating the blob if it is not there. Gives the time of
    /// the first attempt: from then on the lease may have been ours.
    async fn lease(
        &self,
        attempt: &Amendment<'_>,
        id: LeaseId,
        duration: Duration,
    ) -> Result<LeaseOutcome, Fault> {
        let blobs = &self.shared.blobs;
        let Amendment { name, path, why, .. } = attempt;
        let known = self.shared.memory.get(name).is_some_and(|known| known.version.is_some());
        // When the first attempt was sent that may have succeeded.
        let mut perhaps_since = None;
        let (mut look, mut looked) = (!known, None);
        let (mut retries, mut creations) = (self.retries(), 0);
        loop {
            let acquire = blobs.acquire(path, id, duration, *why);
            let (sent, leased) = if std::mem::take(&mut look) {
                // Both at once: what was read holds if the versions agree.
                let (leased, seen) = tokio::join!(acquire, blobs.read(path, *why));
                if let Ok(BlobState { etag, record: Ok(record), .. }) = &seen {
                    self.shared.memory.saw(name, etag, record);
                }
                looked = seen.ok();
                leased
            } else {
                acquire.await
            };
            match leased {
                Ok(leased) => return Ok(LeaseOutcome::Ours(perhaps_since.unwrap_or(sent), leased)),
                Err(Fault::Held) => {
                    // What an earlier attempt took may have been broken since, and
                    // would keep others out until its term is over.
                    if perhaps_since.is_some()
                        && let Release::Unknown { why } = self.release_lease(path, id, *why).await
                    {
                        return Err(Fault::Unclear { why });
                    }
                    let by = match looked.filter(|seen| seen.leased) {
                        Some(seen) => Some(seen),
                        None => blobs.read(path, *why).await.ok(),
                    };
                    let by = match by {
                        Some(seen) => self.held_by(name, seen, *why).await,
                        None => None,
                    };
                    return Ok(LeaseOutcome::Held { by });
                }
                Err(Fault::NoBlob) if creations < MAX_CREATE_ATTEMPTS => {
                    creations += 1;
                    match self.create(attempt).await {
                        Ok(None) => {}
                        Ok(Some(unclear)) => {
                            creations -= 1;
                            if !retries.wait(attempt.until).await {
                                return Err(unclear);
                            }
                        }
                        Err(fault) => return Err(unknown_if_retried(fault, perhaps_since)),
                    }
                }
                Err(fault @ (Fault::Unclear { .. } | Fault::Busy { .. })) => {
                    let until = *perhaps_since.get_or_insert(sent) + duration / 3;
                    if !retries.wait(until).await {
                        return Err(fault);
                    }
                }
                Err(fault) => return Err(unknown_if_retried(fault, perhaps_since)),
            }
        }
    }

    /// Whoever creates it first, it is there afterwards.
    /// Gives what went wrong if that is not clear: the lease will tell.
    async fn create(&self, attempt: &Amendment<'_>) -> Result<Option<Fault>, Fault> {
        self.shared.memory.invalidate(attempt.name);
        let record = Record {
            token: 0,
            nonce: self.nonce(),
            daemon: self.shared.daemon.to_string(),
            ..Record::default()
        };
        match self.shared.blobs.create(&attempt.path, &record, attempt.why).await {
            Ok(etag) => {
                self.shared.memory.saw(attempt.name, &etag, &record);
                Ok(None)
            }
            Err(Fault::Changed | Fault::NotOurs { .. }) => Ok(None),
            // The lease will tell.
            Err(fault) if fault.is_unclear() => Ok(Some(fault)),
            Err(fault) => Err(fault),
        }
    }
}

/// What one attempt failed with says nothing of an earlier one that may have
/// succeeded.
fn unknown_if_retried(fault: Fault, perhaps_since: Option<Moment>) -> Fault {
    match perhaps_since {
        Some(_) => Fault::Unclear { why: fault.why() },
        None => fault,
    }
}

/// When to stop counting on a lease (safety rule 3).
pub(crate) fn deadline(sent: Moment, duration: Duration) -> Moment {
    let margin = (duration / 20).max(Duration::from_secs(1));
    if mutant::is(Mutant::DeadlineWithoutMargin) {
        return sent + duration;
    }
    let sent = if mutant::is(Mutant::DeadlineFromAnswer) { Moment::now() } else { sent };
    if mutant::is(Mutant::NoRoomForDrift) {
        return sent + (duration - margin);
    }
    sent + (duration - duration / 500 - margin)
}

/// The record's next tokens.
fn next_hold(record: &mut Record, basis: &AmendContext) -> Result<(), AmendError> {
    record.token = next_token(record.token, basis, clock::unix_seconds())?;
    Ok(())
}

/// The first token of the next hold.
///
/// A blob that was created anew has none: its tokens begin after the second in
/// which it was created by the service's clock, so that they are greater than
/// any from before it was deleted.
///
/// Without a usable Date, a stored token is continued only if this process wrote
/// that version of the blob. Any other version may be an old one that was
/// restored, after a peer had stored higher tokens that this process never saw.
fn next_token(stored: u64, basis: &AmendContext, wall: u64) -> Result<u64, AmendError> {
    let AmendContext { date, highest, is_own } = *basis;
    let absurd = |date: &u64| *date > wall.saturating_add(MAX_CLOCK_LEAD);
    let date = date.filter(|date| !absurd(date) || mutant::is(Mutant::AbsurdDate));
    let token = match (stored, date) {
        (0, None) => return Err(AmendError::Otherwise(ABSURD_CLOCK.to_owned())),
        (0, Some(_)) if mutant::is(Mutant::ForgetfulEpoch) => TOKENS_PER_HOLD,
        (0, Some(date)) if mutant::is(Mutant::SameSecond) => {
            (date << SEQ_BITS).max(highest + TOKENS_PER_HOLD)
        }
        (0, Some(date)) if mutant::is(Mutant::NewForgetsSeen) => (date + 1) << SEQ_BITS,
        (0, Some(date)) => ((date + 1) << SEQ_BITS).max(highest + TOKENS_PER_HOLD),
        (stored, Some(date)) => (stored + TOKENS_PER_HOLD).max(date << SEQ_BITS),
        (stored, None) if is_own => stored + TOKENS_PER_HOLD,
        (_, None) => return Err(AmendError::Otherwise(UNUSABLE_CLOCK.to_owned())),
    };
    if TokenRange::from(token, TOKENS_PER_HOLD).is_empty() {
        return Err(AmendError::Corrupt("its tokens are used up".to_owned()));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn tokens_rise_with_the_holds_and_with_the_services_clock() {
        let next = |stored, highest, date| {
            next_token(stored, &AmendContext { date, highest, is_own: true }, NOW).ok()
        };
        assert_eq!(next(NOW << 20, 0, Some(NOW)), Some((NOW << 20) + TOKENS_PER_HOLD));
        assert_eq!(next(NOW << 20, 0, Some(NOW + 1)), Some((NOW + 1) << 20));
        assert_eq!(next(NOW << 20, 0, None), Some((NOW << 20) + TOKENS_PER_HOLD));
        // A new blob: after all that could have been before it was deleted.
        assert_eq!(next(0, 0, Some(NOW)), Some((NOW + 1) << 20));
        let before = (NOW << 20) + 1023 * TOKENS_PER_HOLD;
        assert!(next(0, 0, Some(NOW)).unwrap() > before + TOKENS_PER_HOLD - 1);
        let seen = (NOW + 5) << 20;
        assert_eq!(next(0, seen, Some(NOW)), Some(seen + TOKENS_PER_HOLD));
        // A clock that is absurdly ahead is ignored, unless there is no other.
        assert_eq!(
            next(NOW << 20, 0, Some(NOW + MAX_CLOCK_LEAD + 1)),
            Some((NOW << 20) + TOKENS_PER_HOLD)
        );
        assert_eq!(next(0, 0, Some(NOW + MAX_CLOCK_LEAD + 1)), None);
        assert_eq!(next(0, 0, None), None);
        assert_eq!(next((1 << 53) - TOKENS_PER_HOLD, 0, None), None, "used up");
    }

    #[test]
    fn foreign_record_is_not_continued_without_usable_date() {
        let next = |date, is_own| {
            next_token(NOW << 20, &AmendContext { date, highest: NOW << 20, is_own }, NOW).ok()
        };
        assert_eq!(next(Some(NOW), false), Some((NOW << 20) + TOKENS_PER_HOLD));
        assert_eq!(next(Some(NOW + MAX_CLOCK_LEAD), false), Some((NOW + MAX_CLOCK_LEAD) << 20));
        assert_eq!(next(Some(NOW + MAX_CLOCK_LEAD + 1), false), None);
        assert_eq!(next(None, false), None);
        assert_eq!(next(Some(NOW + MAX_CLOCK_LEAD + 1), true), Some((NOW << 20) + TOKENS_PER_HOLD));
    }

    #[test]
    fn the_deadline_is_before_the_end_of_the_lease() {
        let sent = Moment::from_boot(Duration::from_secs(100));
        let after = |seconds| deadline(sent, Duration::from_secs(seconds)).since(sent);
        assert_eq!(after(15), Duration::from_millis(13_970));
        assert_eq!(after(60), Duration::from_millis(56_880));
    }
}

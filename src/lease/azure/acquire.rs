//! Acquiring a lease, and making tokens durable (safety rules 2, 3, 6 and 7).
//!
//! Two calls where the blob's version is known: the lease, whose answer names
//! the version, and the record. Where it is not known, the read goes out along
//! with the lease. Whatever stays unclear is answered as unknown: then the
//! lease is released under its id, which is never used again.

use std::{sync::Arc, time::Duration};

use azure_core::http::Etag;
use backon::{BackoffBuilder, ExponentialBuilder};

use super::{
    Azure,
    blob::{For, Leased, Seen},
    budget::Cause,
    fault::Fault,
    limit, path,
    record::{Record, SLICE},
};
use crate::{
    clock::{self, Moment, sleep},
    holder::Holder,
    lease::{Acquire, Acquired, Breaker, Claim, Error, LeaseId, Tokens, token::SEQ_BITS},
    name::LockName,
};

/// A service's clock that is further ahead of ours than this is absurd.
const ABSURD: u64 = 24 * 60 * 60;

const ABSURD_CLOCK: &str = "the lock is new, and the storage service's clock, at which its tokens \
    begin, is absurdly ahead of this machine's: set the clock of this machine right";

/// How often a record is tried: each further try follows a change by somebody
/// else, who can't go on for long while the lease is ours.
const TRIES: usize = 4;

/// An acquisition under way.
struct Try<'a> {
    name: &'a LockName,
    path: String,
    id: LeaseId,
    /// When to stop trying: long before the lease is over.
    until: Moment,
    why: For,
}

/// What became of a lease.
enum Leasing {
    /// Ours since the first attempt, which was sent then.
    Ours(Moment, Leased),
    /// Another's.
    Held { by: Option<Arc<Holder>> },
}

/// How a record was written.
enum Written {
    /// These tokens are durable.
    Yes(Tokens),
    /// The lease is not ours.
    NotOurs(&'static str),
    /// Perhaps, or not at all.
    Unknown(String),
}

/// The blob does not say what it should.
struct Corrupt(String);

impl Azure {
    /// See [`LeaseStore::acquire`](crate::lease::LeaseStore::acquire).
    pub(super) async fn acquire_lease(&self, claim: Claim) -> Result<Acquire, Error> {
        if claim.again
            && let Some(held) = self.look_first(&claim).await?
        {
            return Ok(held);
        }
        let attempt = Try {
            name: &claim.name,
            path: path::of(&self.shared.prefix, &claim.name),
            id: claim.id,
            until: Moment::now() + claim.duration / 3,
            why: For { cause: Cause::Grant, limit: limit(claim.duration) },
        };
        let (sent, leased) = match self.lease(&attempt, claim.duration).await {
            Ok(Leasing::Ours(sent, leased)) => (sent, leased),
            Ok(Leasing::Held { by }) => return Ok(Acquire::Held { by }),
            Err(fault) if fault.is_unclear() || matches!(fault, Fault::NotOurs { .. }) => {
                return Ok(Acquire::Unknown { why: fault.why() });
            }
            Err(fault) => return Err(fault.into_error()),
        };
        let written = self.write_record(&attempt, leased, Some(&claim.holder)).await;
        match written {
            Ok(Written::Yes(tokens)) => {
                self.shared.memory.change(&claim.name, |known| known.hold = Some(claim.id));
                let deadline = Some(deadline(sent, claim.duration));
                Ok(Acquire::Acquired(Acquired { tokens, deadline }))
            }
            Ok(Written::NotOurs(why)) => Ok(Acquire::Unknown { why: why.to_owned() }),
            Ok(Written::Unknown(why)) => Ok(Acquire::Unknown { why }),
            Err(corrupt) => {
                // It was ours to look at, no more.
                _ = self.shared.blobs.release(&attempt.path, claim.id, attempt.why).await;
                Err(self.data_loss(&attempt, corrupt))
            }
        }
    }

    /// See [`LeaseStore::next_tokens`](crate::lease::LeaseStore::next_tokens).
    pub(super) async fn more_tokens(&self, name: LockName, id: LeaseId) -> Result<Acquire, Error> {
        let time = limit(Duration::from_secs(15));
        let attempt = Try {
            name: &name,
            path: path::of(&self.shared.prefix, &name),
            id,
            until: Moment::now() + time,
            why: For { cause: Cause::Grant, limit: time },
        };
        let known = self.shared.memory.get(&name).and_then(|known| known.version);
        let (etag, date) = match known {
            Some((etag, _)) => (etag, None),
            None => match self.read(&attempt).await {
                Ok(seen) => (seen.etag, seen.date),
                Err(Fault::NoBlob) => return Ok(Acquire::Held { by: None }),
                Err(fault) => return Ok(Acquire::Unknown { why: fault.why() }),
            },
        };
        match self.write_record(&attempt, Leased { etag, date }, None).await {
            Ok(Written::Yes(tokens)) => Ok(Acquire::Acquired(Acquired { tokens, deadline: None })),
            Ok(Written::NotOurs(_)) => Ok(Acquire::Held { by: None }),
            Ok(Written::Unknown(why)) => Ok(Acquire::Unknown { why }),
            Err(corrupt) => Err(self.data_loss(&attempt, corrupt)),
        }
    }

    /// Notes a break with a lock, with our lease or none.
    pub(super) async fn write_note(&self, name: LockName, breaker: Breaker, id: Option<LeaseId>) {
        let path = path::of(&self.shared.prefix, &name);
        let why = For { cause: Cause::Break, limit: limit(Duration::from_secs(15)) };
        for _ in 0..TRIES {
            let Ok(seen) = self.shared.blobs.read(&path, why).await else { return };
            let Ok(mut record) = seen.record else { return };
            record.broken = Some(breaker.clone());
            record.nonce = self.nonce();
            match self.shared.blobs.write(&path, &record, id, &seen.etag, why).await {
                Ok(etag) => {
                    self.shared.memory.saw(&name, &etag, &record);
                    return self.shared.memory.change(&name, |known| known.unnoted = None);
                }
                Err(Fault::Changed) => {}
                Err(fault) if fault.is_unclear() => self.shared.memory.doubt(&name),
                // It is somebody else's by now.
                Err(_) => return,
            }
        }
    }

    /// A lease that was held a moment ago most likely still is: a read says
    /// so, and by whom, for a fraction of the price.
    async fn look_first(&self, claim: &Claim) -> Result<Option<Acquire>, Error> {
        if let Some(rest) = self.shared.blobs.budget.resting() {
            return Err(Fault::Busy { retry_after: Some(rest) }.into_error());
        }
        let path = path::of(&self.shared.prefix, &claim.name);
        let why = For { cause: Cause::Poll, limit: limit(claim.duration) };
        match self.shared.blobs.read(&path, why).await {
            Ok(seen) if seen.leased => {
                let by = seen.record.ok().and_then(|record| record.holder);
                Ok(Some(Acquire::Held { by }))
            }
            Ok(seen) => {
                if let Ok(record) = &seen.record {
                    self.remember(&claim.name, &seen.etag, record);
                }
                Ok(None)
            }
            Err(Fault::NoBlob) => {
                self.shared.memory.doubt(&claim.name);
                Ok(None)
            }
            Err(fault) => Err(fault.into_error()),
        }
    }

    /// Takes the lease, creating the blob if it is not there. Gives the time of
    /// the first attempt: from then on the lease may have been ours.
    async fn lease(&self, attempt: &Try<'_>, duration: Duration) -> Result<Leasing, Fault> {
        let blobs = &self.shared.blobs;
        let Try { name, path, id, why, .. } = attempt;
        let known = self.shared.memory.get(name).is_some_and(|known| known.version.is_some());
        let (mut first, mut looked) = (None, None);
        let mut retries = retries();
        let mut perhaps_ours = false;
        loop {
            let acquire = blobs.acquire(path, *id, duration, *why);
            let (sent, leased) = if known || first.is_some() {
                acquire.await
            } else {
                // Both at once: what was read holds if the versions agree.
                let (leased, seen) = tokio::join!(acquire, blobs.read(path, *why));
                if let Ok(Seen { etag, record: Ok(record), .. }) = &seen {
                    self.remember(name, etag, record);
                }
                looked = seen.ok();
                leased
            };
            let first = *first.get_or_insert(sent);
            match leased {
                Ok(leased) => return Ok(Leasing::Ours(first, leased)),
                Err(Fault::Held) => {
                    let by = match looked.filter(|seen| seen.leased) {
                        Some(seen) => Some(seen),
                        None => blobs.read(path, *why).await.ok(),
                    };
                    let by = by.and_then(|seen| seen.record.ok()?.holder);
                    return Ok(Leasing::Held { by });
                }
                Err(Fault::NoBlob) => self.create(attempt).await?,
                Err(fault @ (Fault::Unclear { .. } | Fault::Busy { .. })) => {
                    perhaps_ours = true;
                    match retries.next().filter(|wait| Moment::now() + *wait < attempt.until) {
                        Some(wait) => sleep(wait).await,
                        None => return Err(fault),
                    }
                }
                // It says nothing of the attempt before.
                Err(fault) if perhaps_ours => return Err(Fault::Unclear { why: fault.why() }),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Whoever creates it first, it is there afterwards.
    async fn create(&self, attempt: &Try<'_>) -> Result<(), Fault> {
        self.shared.memory.doubt(attempt.name);
        if attempt.until.has_passed() {
            return Err(Fault::NoBlob);
        }
        let record = Record {
            token: 0,
            nonce: self.nonce(),
            holder: None,
            daemon: self.shared.daemon.clone(),
            broken: None,
        };
        match self.shared.blobs.create(&attempt.path, &record, attempt.why).await {
            Ok(etag) => {
                self.remember(attempt.name, &etag, &record);
                Ok(())
            }
            Err(Fault::Changed | Fault::NotOurs { .. }) => Ok(()),
            // The lease will tell.
            Err(fault) if fault.is_unclear() => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Writes the record of this hold under its lease, from the version on
    /// that the lease was acquired at.
    async fn write_record(
        &self,
        attempt: &Try<'_>,
        leased: Leased,
        holder: Option<&Arc<Holder>>,
    ) -> Result<Written, Corrupt> {
        let Leased { mut etag, mut date } = leased;
        let mut next = Record {
            token: 0,
            nonce: self.nonce(),
            holder: None,
            daemon: self.shared.daemon.clone(),
            broken: None,
        };
        let mut based_on = None;
        let mut retries = retries();
        for _ in 0..TRIES {
            if based_on.as_ref() != Some(&etag) {
                let stored = match self.at_version(attempt, &mut etag, &mut date).await {
                    Ok(record) => record?,
                    Err(fault) => return Ok(unknown(fault)),
                };
                let known = self.shared.memory.get(attempt.name);
                let highest = known.as_ref().map_or(0, |known| known.highest);
                let wall = clock::unix_seconds();
                let Some(token) = next_token(stored.token, highest, date, wall)? else {
                    return Ok(Written::Unknown(ABSURD_CLOCK.to_owned()));
                };
                next.token = token;
                let unnoted = known.and_then(|known| known.unnoted);
                next.broken = unnoted.or(stored.broken);
                next.holder = holder.map(Arc::clone).or(stored.holder);
                next.nonce = self.nonce();
                based_on = Some(etag.clone());
            }
            let (path, id) = (&attempt.path, Some(attempt.id));
            match self.shared.blobs.write(path, &next, id, &etag, attempt.why).await {
                Ok(written) => return Ok(self.wrote(attempt, &written, &next)),
                Err(Fault::NotOurs { why }) => {
                    self.shared.memory.doubt(attempt.name);
                    return Ok(Written::NotOurs(why));
                }
                // It may have been written: by then its nonce is there.
                Err(fault) if fault.is_unclear() || fault == Fault::Changed => {
                    self.shared.memory.doubt(attempt.name);
                    match retries.next().filter(|wait| Moment::now() + *wait < attempt.until) {
                        Some(wait) if fault.is_unclear() => sleep(wait).await,
                        Some(_) => {}
                        None => return Ok(unknown(fault)),
                    }
                    match self.read(attempt).await {
                        Ok(Seen { etag, record: Ok(record), .. }) if record.nonce == next.nonce => {
                            return Ok(self.wrote(attempt, &etag, &next));
                        }
                        Ok(seen) => {
                            if let Ok(record) = &seen.record {
                                self.remember(attempt.name, &seen.etag, record);
                            }
                            etag = seen.etag;
                        }
                        Err(fault) => return Ok(unknown(fault)),
                    }
                }
                Err(fault) => return Ok(unknown(fault)),
            }
        }
        Ok(Written::Unknown("the blob was changed again and again meanwhile".to_owned()))
    }

    fn wrote(&self, attempt: &Try<'_>, etag: &Etag, record: &Record) -> Written {
        self.remember(attempt.name, etag, record);
        self.shared.memory.change(attempt.name, |known| known.unnoted = None);
        Written::Yes(Tokens::from(record.token, SLICE))
    }

    /// The record at a version: as remembered, or else read, which may bring a
    /// later version.
    async fn at_version(
        &self,
        attempt: &Try<'_>,
        etag: &mut Etag,
        date: &mut Option<u64>,
    ) -> Result<Result<Record, Corrupt>, Fault> {
        let known = self.shared.memory.get(attempt.name);
        let highest = known.as_ref().map_or(0, |known| known.highest);
        let record = match known.and_then(|known| known.version) {
            Some((known, record)) if known == *etag => record,
            _ => {
                let seen = self.read(attempt).await?;
                *etag = seen.etag;
                *date = seen.date.or(*date);
                match seen.record {
                    Ok(record) => record,
                    Err(garbage) => return Ok(Err(Corrupt(garbage.0))),
                }
            }
        };
        if record.token != 0 && record.token < highest {
            let (found, seen) = (record.token, highest);
            let why = format!("its token is {found}, but {seen} was seen before: it went back");
            return Ok(Err(Corrupt(why)));
        }
        Ok(Ok(record))
    }

    /// Reads the blob, more than once if there is no clear answer.
    async fn read(&self, attempt: &Try<'_>) -> Result<Seen, Fault> {
        let mut retries = retries();
        loop {
            match self.shared.blobs.read(&attempt.path, attempt.why).await {
                Err(fault) if fault.is_trouble() => {
                    match retries.next().filter(|wait| Moment::now() + *wait < attempt.until) {
                        Some(wait) => sleep(wait).await,
                        None => return Err(fault),
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Remembers a version, unless it is older than what was seen before.
    fn remember(&self, name: &LockName, etag: &Etag, record: &Record) {
        let highest = self.shared.memory.get(name).map_or(0, |known| known.highest);
        if record.token == 0 || record.token >= highest {
            self.shared.memory.saw(name, etag, record);
        } else {
            self.shared.memory.doubt(name);
        }
    }

    fn data_loss(&self, attempt: &Try<'_>, corrupt: Corrupt) -> Error {
        let (name, path) = (attempt.name, &attempt.path);
        let why = format!(
            "the blob {path} can't be trusted: {}. Nothing is granted under this name until an \
             operator has looked. If nobody uses the lock, delete the blob: tokens then go on from \
             the storage service's clock",
            corrupt.0
        );
        self.shared.memory.doubt(name);
        tracing::error!(lock = %name, "{why}");
        Error::DataLoss { why }
    }
}

fn unknown(fault: Fault) -> Written {
    match fault {
        Fault::NotOurs { why } => Written::NotOurs(why),
        fault => Written::Unknown(fault.why()),
    }
}

/// When to stop counting on a lease (safety rule 3).
pub(super) fn deadline(sent: Moment, duration: Duration) -> Moment {
    let margin = (duration / 20).max(Duration::from_secs(1));
    sent + (duration - duration / 500 - margin)
}

/// The first token of the next hold; none if no clock can be trusted to begin
/// with.
///
/// A blob that was created anew has none: its tokens begin after the second in
/// which it was created by the service's clock, so that they are greater than
/// any from before it was deleted.
fn next_token(
    stored: u64,
    highest: u64,
    date: Option<u64>,
    wall: u64,
) -> Result<Option<u64>, Corrupt> {
    let date = date.filter(|date| *date <= wall.saturating_add(ABSURD));
    let token = match (stored, date) {
        (0, None) => return Ok(None),
        (0, Some(date)) => ((date + 1) << SEQ_BITS).max(highest + SLICE),
        (stored, date) => (stored + SLICE).max(date.unwrap_or(0) << SEQ_BITS),
    };
    if Tokens::from(token, SLICE).is_empty() {
        return Err(Corrupt("its tokens are used up".to_owned()));
    }
    Ok(Some(token))
}

/// Waits between the attempts of one call, with jitter.
pub(super) fn retries() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(2))
        .with_max_times(6)
        .with_jitter()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn tokens_rise_with_the_holds_and_with_the_services_clock() {
        let next = |stored, highest, date| next_token(stored, highest, date, NOW).ok().flatten();
        assert_eq!(next(NOW << 20, 0, Some(NOW)), Some((NOW << 20) + SLICE));
        assert_eq!(next(NOW << 20, 0, Some(NOW + 1)), Some((NOW + 1) << 20));
        assert_eq!(next(NOW << 20, 0, None), Some((NOW << 20) + SLICE));
        // A new blob: after all that could have been before it was deleted.
        assert_eq!(next(0, 0, Some(NOW)), Some((NOW + 1) << 20));
        let before = (NOW << 20) + 1023 * SLICE;
        assert!(next(0, 0, Some(NOW)).unwrap() > before + SLICE - 1);
        let seen = (NOW + 5) << 20;
        assert_eq!(next(0, seen, Some(NOW)), Some(seen + SLICE));
        // A clock that is absurdly ahead is ignored, unless there is no other.
        assert_eq!(next(NOW << 20, 0, Some(NOW + ABSURD + 1)), Some((NOW << 20) + SLICE));
        assert_eq!(next(0, 0, Some(NOW + ABSURD + 1)), None);
        assert_eq!(next(0, 0, None), None);
        assert_eq!(next((1 << 53) - SLICE, 0, None), None, "used up");
    }

    #[test]
    fn the_deadline_is_before_the_end_of_the_lease() {
        let sent = Moment::from_boot(Duration::from_secs(100));
        let after = |seconds| deadline(sent, Duration::from_secs(seconds)).since(sent);
        assert_eq!(after(15), Duration::from_millis(13_970));
        assert_eq!(after(60), Duration::from_millis(56_880));
    }
}

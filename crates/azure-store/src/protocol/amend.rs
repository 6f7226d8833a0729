//! Changing a lock's record, under its lease and from a known version on
//! (safety rules 2 and 7).

use std::time::Duration;

use azure_core::http::Etag;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::record::Record;
use crate::{
    AzureStore,
    calls::{
        blob::{BlobState, CallOptions, Leased},
        fault::Fault,
        limiter::Purpose,
    },
    limit,
};
use leasehold_rules::mutant::{self, Mutant};
use leasehold_runtime::sleep;
use leasehold_store::{Error, LeaseId, Value};
use leasehold_time::Moment;
use leasehold_types::LockName;

/// How often a change is tried: each further try follows a change by somebody
/// else, who can't go on for long while the lease is ours.
const MAX_ATTEMPTS: usize = 4;

/// A change under way.
pub(crate) struct Amendment<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) path: String,
    /// The lease under which it is made; none if nobody has one.
    pub(crate) id: Option<LeaseId>,
    /// When to stop trying: long before the lease is over.
    pub(crate) until: Moment,
    pub(crate) why: CallOptions,
}

/// What a change may go by.
pub(crate) struct AmendContext {
    /// The service's clock, in seconds since 1970, if it was told.
    pub(crate) date: Option<u64>,
    /// The greatest token that was ever seen with this lock.
    pub(crate) highest: u64,
    /// Whether this process wrote the record's version, under its own lease.
    pub(crate) is_own: bool,
}

/// How a change went.
pub(crate) enum Written {
    /// This is what is stored.
    Stored(Record),
    /// The lease is not ours.
    NotOurs(&'static str),
    /// Perhaps it was made, perhaps not.
    Unknown(String),
}

/// Why no change can be made.
pub(crate) enum AmendError {
    /// The blob does not say what it should.
    Corrupt(String),
    /// Something else is not as it should be, and may be later.
    Otherwise(String),
}

/// The waits between the attempts of one call: ever longer, with jitter, and
/// not for ever.
pub(crate) struct Retries(ExponentialBackoff);

impl Retries {
    /// Waits before the next attempt. Not if that would begin after `until`, or
    /// if it was tried often enough: then this is false.
    pub(crate) async fn wait(&mut self, until: Moment) -> bool {
        match self.0.next().filter(|wait| Moment::now() + *wait < until) {
            Some(wait) => {
                sleep(wait).await;
                true
            }
            None => false,
        }
    }
}

impl AzureStore {
    pub(crate) fn retries(&self) -> Retries {
        let retries = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(2))
            .with_max_times(6)
            .with_jitter()
            .with_jitter_seed(self.shared.entropy().bits() as u64);
        Retries(retries.build())
    }

    /// A change under a lease of that duration.
    pub(crate) fn attempt<'a>(
        &self,
        name: &'a LockName,
        id: Option<LeaseId>,
        cause: Purpose,
        duration: Duration,
    ) -> Amendment<'a> {
        let why = CallOptions { cause, limit: limit(duration) };
        Amendment { name, path: self.path(name), id, until: Moment::now() + duration / 3, why }
    }

    /// Changes the record, from the version on at which the lease was acquired.
    /// `change` may be called more than once; it gives the blob's content if
    /// that is to be replaced too.
    pub(crate) async fn amend(
        &self,
        attempt: &Amendment<'_>,
        leased: Leased,
        change: impl Fn(&mut Record, &AmendContext) -> Result<Option<Value>, AmendError>,
    ) -> Result<Written, String> {
        let Leased { mut etag, mut date } = leased;
        let mut made: Option<(Etag, Record, Option<Value>)> = None;
        let mut retries = self.retries();
        for _ in 0..MAX_ATTEMPTS {
            let (record, content) = match &made {
                Some((from, record, content)) if *from == etag => (record, content),
                _ => {
                    let mut record = match self.at_version(attempt, &mut etag, &mut date).await {
                        Ok(record) => record?,
                        Err(fault) => return Ok(unknown(fault)),
                    };
                    let known = self.shared.memory.get(attempt.name);
                    let highest = known.as_ref().map_or(0, |known| known.highest);
                    let written = known.as_ref().and_then(|known| known.written.as_ref());
                    let basis = AmendContext { date, highest, is_own: written == Some(&etag) };
                    let content = match change(&mut record, &basis) {
                        Ok(content) => content,
                        Err(AmendError::Corrupt(why)) => return Err(why),
                        Err(AmendError::Otherwise(why)) => return Ok(Written::Unknown(why)),
                    };
                    record.broken = known.and_then(|known| known.unnoted).or(record.broken);
                    record.daemon = self.shared.daemon.to_string();
                    record.endpoint = self.shared.endpoint.get().cloned();
                    record.nonce = self.nonce();
                    if let Some(content) = &content {
                        record.bytes = content.len();
                    }
                    let (_, record, content) = made.insert((etag.clone(), record, content));
                    (&*record, &*content)
                }
            };
            if mutant::is(Mutant::GrantBeforeWrite) {
                return Ok(Written::Stored(record.clone()));
            }
            let content = content.as_deref();
            let (blobs, path) = (&self.shared.blobs, &attempt.path);
            match blobs.write(path, record, content, attempt.id, &etag, attempt.why).await {
                Ok(written) => return Ok(self.wrote(attempt, &written, record)),
                Err(fault @ (Fault::NotOurs { .. } | Fault::NoBlob)) => {
                    self.shared.memory.invalidate(attempt.name);
                    return Ok(unknown(fault));
                }
                Err(fault) if fault.is_unclear() && mutant::is(Mutant::UnclearWriteBelieved) => {
                    return Ok(Written::Stored(record.clone()));
                }
                // It may have been written: then its nonce is there.
                Err(fault) if fault.is_unclear() || fault == Fault::Changed => {
                    self.shared.memory.invalidate(attempt.name);
                    let go_on = if fault.is_unclear() {
                        retries.wait(attempt.until).await
                    } else {
                        !attempt.until.has_passed()
                    };
                    if !go_on {
                        return Ok(unknown(fault));
                    }
                    match self.read(attempt).await {
                        Ok(BlobState { etag, record: Ok(found), .. })
                            if found.nonce == record.nonce
                                || (mutant::is(Mutant::NonceUnread)
                                    && found.token == record.token) =>
                        {
                            return Ok(self.wrote(attempt, &etag, record));
                        }
                        Ok(seen) => {
                            if let Ok(record) = &seen.record {
                                self.shared.memory.saw(attempt.name, &seen.etag, record);
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

    /// The same from whatever version there is.
    pub(crate) async fn amend_latest(
        &self,
        attempt: &Amendment<'_>,
        change: impl Fn(&mut Record, &AmendContext) -> Result<Option<Value>, AmendError>,
    ) -> Result<Written, String> {
        let known = self.shared.memory.get(attempt.name).and_then(|known| known.version);
        let leased = match known {
            Some((etag, _)) => Leased { etag, date: None },
            None => match self.read(attempt).await {
                Ok(BlobState { etag, record, date, .. }) => {
                    if let Ok(record) = &record {
                        self.shared.memory.saw(attempt.name, &etag, record);
                    }
                    Leased { etag, date }
                }
                Err(fault) => return Ok(unknown(fault)),
            },
        };
        self.amend(attempt, leased, change).await
    }

    fn wrote(&self, attempt: &Amendment<'_>, etag: &Etag, record: &Record) -> Written {
        self.shared.memory.saw(attempt.name, etag, record);
        let written = attempt.id.is_some().then(|| etag.clone());
        self.shared.memory.change(attempt.name, |known| {
            known.unnoted = None;
            known.written = written;
        });
        Written::Stored(record.clone())
    }

    /// The record at a version: as remembered, or else read, which may bring a
    /// later version. Fails with what is wrong with it.
    async fn at_version(
        &self,
        attempt: &Amendment<'_>,
        etag: &mut Etag,
        date: &mut Option<u64>,
    ) -> Result<Result<Record, String>, Fault> {
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
                    Err(_) if mutant::is(Mutant::GarbageIsNew) => Record::default(),
                    Err(garbage) => return Ok(Err(garbage.0)),
                }
            }
        };
        if record.token != 0 && record.token < highest && !mutant::is(Mutant::TrustOldRecord) {
            let (found, seen) = (record.token, highest);
            let why = format!("its token is {found}, but {seen} was seen before: it went back");
            return Ok(Err(why));
        }
        Ok(Ok(record))
    }

    /// Reads the blob, more than once if there is no clear answer.
    pub(crate) async fn read(&self, attempt: &Amendment<'_>) -> Result<BlobState, Fault> {
        let mut retries = self.retries();
        loop {
            match self.shared.blobs.read(&attempt.path, attempt.why).await {
                Err(fault) if fault.is_trouble() => {
                    if !retries.wait(attempt.until).await {
                        return Err(fault);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// What is stored can't be trusted: a person must look.
    pub(crate) fn data_loss(&self, attempt: &Amendment<'_>, corrupt: &str) -> Error {
        let error = frozen(&attempt.path, corrupt);
        self.shared.memory.invalidate(attempt.name);
        tracing::error!(lock = %attempt.name, "{error}");
        error
    }
}

/// The error of every acquire of a lock whose record is invalid. `corrupt` says
/// what is wrong with the blob, as in "it has no token".
pub(crate) fn frozen(path: &str, corrupt: &str) -> Error {
    let found = match corrupt.strip_prefix("it ") {
        Some(predicate) => format!("blob {path} {predicate}"),
        None => format!("blob {path}: {corrupt}"),
    };
    let why = format!(
        "{found}. Repair the blob, or delete it if no client uses the lock; new \
         tokens then start at the storage clock"
    );
    Error::DataLoss { why }
}

fn unknown(fault: Fault) -> Written {
    match fault {
        Fault::NotOurs { why } => Written::NotOurs(why),
        Fault::NoBlob => Written::NotOurs("its blob was deleted"),
        fault => Written::Unknown(fault.why()),
    }
}

//! Changes of a lock's record, under its lease and from a known version (safety
//! rules 2 and 7).
//!
//! A change is written only if the blob still has the version that the change was
//! made from. After an unknown outcome the blob is read: the nonce of its record
//! reveals whether the write was applied.

use std::time::Duration;

use azure_core::http::Etag;

use super::{
    record::{InvalidRecord, Record},
    retry::Retries,
};
use crate::{
    AzureStore,
    cache::CachedLock,
    calls::{
        CallOptions,
        blob::{BlobState, Leased},
        fault::Fault,
        limiter::Purpose,
    },
};
use leasehold_rules::{RecordId, call_timeout, is_own_record, is_regressed};
use leasehold_store::{LeaseId, Value};
use leasehold_time::Moment;
use leasehold_types::LockName;

/// Maximum number of writes for one change. Each write after the first follows a
/// change by another process, which can't go on for long under this lease.
const MAX_ATTEMPTS: usize = 4;

/// Pending change of a record.
pub(crate) struct Amendment<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) path: String,
    /// Lease under which the record is written; none if no daemon has one.
    pub(crate) id: Option<LeaseId>,
    /// End of the retries, long before the lease expires.
    pub(crate) until: Moment,
    pub(crate) options: CallOptions,
}

/// Facts that a change may use.
pub(crate) struct AmendContext {
    /// Storage clock, in seconds since 1970, if an answer had one.
    pub(crate) date: Option<u64>,
    /// Highest token that this process has seen with this lock.
    pub(crate) highest: u64,
    /// Set if this process wrote the record's version, under its own lease.
    pub(crate) is_own: bool,
}

/// Outcome of a change.
pub(crate) enum Written {
    /// The change is stored, as this record.
    Stored(Record),
    /// The lease is not, or no longer, the blob's.
    NotOurs(&'static str),
    /// The change may or may not have been applied.
    Unknown(String),
}

/// Reason why a change can't be made.
pub(crate) enum AmendError {
    /// The record is invalid.
    Corrupt(String),
    /// Another reason, which may be temporary.
    Otherwise(String),
}

/// Next record to write, with the version that it was made from.
struct Draft {
    from: Etag,
    record: Record,
    content: Option<Value>,
}

/// Step after a write that failed.
enum Next {
    /// Return: the change is complete, or can't be completed.
    End(Written),
    /// Retry the change, from this version.
    From(Etag),
}

impl AzureStore {
    /// Returns a change under a lease of this duration, or under none.
    pub(crate) fn amendment<'a>(
        &self,
        name: &'a LockName,
        id: Option<LeaseId>,
        purpose: Purpose,
        duration: Duration,
    ) -> Amendment<'a> {
        let options = CallOptions { purpose, timeout: call_timeout(duration) };
        let until = Moment::now() + duration / 3;
        Amendment { name, path: self.path(name), id, until, options }
    }

    /// Changes the record, from the version at which the lease was acquired. `change`
    /// may be called more than once; it returns the blob's content if that is to be
    /// replaced too. Fails if the record can't be trusted, with the reason.
    pub(crate) async fn amend(
        &self,
        amendment: &Amendment<'_>,
        leased: Leased,
        change: impl Fn(&mut Record, &AmendContext) -> Result<Option<Value>, AmendError>,
    ) -> Result<Written, String> {
        let Leased { mut etag, mut date } = leased;
        let mut draft: Option<Draft> = None;
        let mut retries = self.retries();
        for _ in 0..MAX_ATTEMPTS {
            let made = match draft.take_if(|draft| draft.from == etag) {
                Some(draft) => draft,
                None => {
                    let found = self.at_version(amendment, &mut etag, &mut date).await;
                    let record = match found {
                        Ok(record) => record?,
                        Err(fault) => return Ok(unknown(fault)),
                    };
                    match self.draft(amendment, &etag, date, record, &change) {
                        Ok(draft) => draft,
                        Err(AmendError::Corrupt(why)) => return Err(why),
                        Err(AmendError::Otherwise(why)) => return Ok(Written::Unknown(why)),
                    }
                }
            };
            let made = draft.insert(made);
            let (record, content) = (&made.record, made.content.as_deref());
            let (blobs, path) = (&self.shared.blobs, &amendment.path);
            let options = amendment.options;
            let fault = match blobs.write(path, record, content, amendment.id, &etag, options).await
            {
                Ok(written) => return Ok(self.stored(amendment, &written, record)),
                Err(fault) => fault,
            };
            match self.after_failure(amendment, record, fault, &mut retries).await {
                Next::End(written) => return Ok(written),
                Next::From(version) => etag = version,
            }
        }
        Ok(Written::Unknown("the blob was changed repeatedly by other processes".to_owned()))
    }

    /// Changes the record from its current version.
    pub(crate) async fn amend_latest(
        &self,
        amendment: &Amendment<'_>,
        change: impl Fn(&mut Record, &AmendContext) -> Result<Option<Value>, AmendError>,
    ) -> Result<Written, String> {
        let cached = self.shared.cache.get(amendment.name).and_then(|cached| cached.version);
        let leased = match cached {
            Some((etag, _)) => Leased { etag, date: None },
            None => match self.read(amendment).await {
                Ok(BlobState { etag, record, date, .. }) => {
                    if let Ok(record) = &record {
                        self.shared.cache.saw(amendment.name, &etag, record);
                    }
                    Leased { etag, date }
                }
                Err(fault) => return Ok(unknown(fault)),
            },
        };
        self.amend(amendment, leased, change).await
    }

    /// Applies a change to the record at a version.
    fn draft(
        &self,
        amendment: &Amendment<'_>,
        etag: &Etag,
        date: Option<u64>,
        mut record: Record,
        change: impl Fn(&mut Record, &AmendContext) -> Result<Option<Value>, AmendError>,
    ) -> Result<Draft, AmendError> {
        let CachedLock { highest, written, unrecorded, .. } =
            self.shared.cache.get(amendment.name).unwrap_or_default();
        let context = AmendContext { date, highest, is_own: written.as_ref() == Some(etag) };
        let content = change(&mut record, &context)?;
        record.broken = unrecorded.or(record.broken);
        record.daemon = self.shared.daemon.clone();
        record.endpoint = self.shared.endpoint.get().cloned();
        record.nonce = self.nonce();
        if let Some(content) = &content {
            record.bytes = content.len();
        }
        Ok(Draft { from: etag.clone(), record, content })
    }

    /// Decides how a change goes on after a write that failed. The write may have been
    /// applied all the same: then the blob has its nonce.
    async fn after_failure(
        &self,
        amendment: &Amendment<'_>,
        record: &Record,
        fault: Fault,
        retries: &mut Retries,
    ) -> Next {
        let is_lost = matches!(fault, Fault::NotOurs { .. } | Fault::NoBlob);
        if is_lost || fault.is_unknown() || fault == Fault::Changed {
            self.shared.cache.invalidate(amendment.name);
        }
        let goes_on = if fault.is_unknown() {
            retries.wait(amendment.until).await
        } else {
            fault == Fault::Changed && !amendment.until.has_passed()
        };
        if !goes_on {
            return Next::End(unknown(fault));
        }
        match self.read(amendment).await {
            Ok(BlobState { etag, record: Ok(found), .. })
                if is_own_record(id_of(&found), id_of(record)) =>
            {
                Next::End(self.stored(amendment, &etag, record))
            }
            Ok(state) => {
                if let Ok(record) = &state.record {
                    self.shared.cache.saw(amendment.name, &state.etag, record);
                }
                Next::From(state.etag)
            }
            Err(fault) => Next::End(unknown(fault)),
        }
    }

    fn stored(&self, amendment: &Amendment<'_>, etag: &Etag, record: &Record) -> Written {
        self.shared.cache.saw(amendment.name, etag, record);
        let written = amendment.id.is_some().then(|| etag.clone());
        self.shared.cache.change(amendment.name, |cached| {
            cached.unrecorded = None;
            cached.written = written;
        });
        Written::Stored(record.clone())
    }

    /// Returns the record at a version: from the cache, or else from a read, which may
    /// find a later version. Fails with the reason if the record can't be trusted.
    async fn at_version(
        &self,
        amendment: &Amendment<'_>,
        etag: &mut Etag,
        date: &mut Option<u64>,
    ) -> Result<Result<Record, String>, Fault> {
        let cached = self.shared.cache.get(amendment.name);
        let highest = cached.as_ref().map_or(0, |cached| cached.highest);
        let record = match cached.and_then(|cached| cached.version) {
            Some((version, record)) if version == *etag => record,
            _ => {
                let state = self.read(amendment).await?;
                *etag = state.etag;
                *date = state.date.or(*date);
                match state.record {
                    Ok(record) => record,
                    Err(InvalidRecord(why)) => return Ok(Err(why)),
                }
            }
        };
        if is_regressed(record.token, highest) {
            let (found, seen) = (record.token, highest);
            let why = format!("its token is {found}, but {seen} was seen before: it went back");
            return Ok(Err(why));
        }
        Ok(Ok(record))
    }

    /// Reads the blob, with retries while the account is unavailable.
    async fn read(&self, amendment: &Amendment<'_>) -> Result<BlobState, Fault> {
        let mut retries = self.retries();
        loop {
            match self.shared.blobs.read(&amendment.path, amendment.options).await {
                Err(fault) if fault.is_account_failure() => {
                    if !retries.wait(amendment.until).await {
                        return Err(fault);
                    }
                }
                answer => return answer,
            }
        }
    }
}

const fn id_of(record: &Record) -> RecordId {
    RecordId { token: record.token, nonce: record.nonce }
}

fn unknown(fault: Fault) -> Written {
    match fault {
        Fault::NotOurs { why } => Written::NotOurs(why),
        Fault::NoBlob => Written::NotOurs("its blob was deleted"),
        fault => Written::Unknown(fault.why()),
    }
}

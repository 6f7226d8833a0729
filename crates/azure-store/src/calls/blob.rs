//! The calls on a lock's blob, one function each. Every call waits for its
//! turn, has a time limit of its own and is never repeated here (safety rule
//! 4).

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use azure_core::http::{Etag, RequestContent, Response, headers::HeaderName};
use azure_storage_blob::{
    BlobClient,
    models::{
        BlobClientAcquireLeaseOptions, BlobClientAcquireLeaseResultHeaders,
        BlobClientBreakLeaseOptions, BlobClientBreakLeaseResultHeaders, BlobClientDeleteOptions,
        BlobClientDownloadOptions, BlobClientGetPropertiesResultHeaders,
        BlobClientRenewLeaseResultHeaders, BlobClientSetMetadataOptions, BlobClientUploadOptions,
        BlobContainerClientListBlobsOptions, LeaseState, ListBlobsIncludeItem,
    },
};
use futures_core::Stream;

use super::{
    fault::Fault,
    health::Health,
    limiter::{CallLimiter, Kind, Purpose},
};
use crate::{
    account::Account,
    protocol::record::{InvalidRecord, Record},
};
use leasehold_rules::mutant::{self, Mutant};
use leasehold_runtime::sleep;
use leasehold_store::{LONGEST_VALUE, LeaseId, Value};
use leasehold_time::{Moment, clock::unix_seconds};

/// How many blobs a page of a listing has.
const LIST_PAGE_SIZE: i32 = 5000;

/// A record is one piece. If it is not told so, the SDK asks the operating system
/// for the number of processors at each call.
const SINGLE_PART: Option<NonZero<usize>> = NonZero::new(1);

/// The blobs of a container, called within a budget.
pub(crate) struct Blobs {
    account: Arc<Account>,
    pub(crate) budget: Arc<CallLimiter>,
    pub(crate) health: Health,
    /// How far the service's clock is ahead of ours, in seconds.
    ahead: AtomicI64,
}

/// A lease that was acquired.
#[derive(Debug)]
pub(crate) struct Leased {
    /// The blob's version, which a lease does not change.
    pub(crate) etag: Etag,
    /// The service's clock, in seconds since 1970.
    pub(crate) date: Option<u64>,
}

/// A blob as it was seen.
#[derive(Debug)]
pub(crate) struct BlobState {
    pub(crate) etag: Etag,
    pub(crate) record: Result<Record, InvalidRecord>,
    pub(crate) leased: bool,
    /// The service's clock, in seconds since 1970.
    pub(crate) date: Option<u64>,
}

/// A blob in a listing.
#[derive(Debug)]
pub(crate) struct ListedBlob {
    pub(crate) path: String,
    pub(crate) seen: BlobState,
    /// When it was written last, in seconds since 1970.
    pub(crate) written_at: Option<u64>,
}

/// Why a call is made, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    pub(crate) cause: Purpose,
    pub(crate) limit: Duration,
}

impl Blobs {
    pub(crate) fn new(account: Arc<Account>, most: usize) -> Self {
        let (budget, health) = (CallLimiter::new(most), Health::default());
        Self { account, budget, health, ahead: AtomicI64::new(0) }
    }

    /// The service's clock, as far as it is known. For people.
    pub(crate) fn service_seconds(&self) -> u64 {
        unix_seconds().saturating_add_signed(self.ahead.load(Relaxed))
    }

    /// Also says when the call was sent.
    pub(crate) async fn acquire(
        &self,
        path: &str,
        id: LeaseId,
        duration: Duration,
        why: CallOptions,
    ) -> (Moment, Result<Leased, Fault>) {
        let blob = self.blob(path);
        let options = BlobClientAcquireLeaseOptions {
            proposed_lease_id: Some(guid(id)),
            ..Default::default()
        };
        self.call(Kind::Acquire, why, async {
            let seconds = duration.as_secs() as i32;
            let answer = blob.acquire_lease(seconds, Some(options)).await?;
            ours(answer.lease_id()?.as_deref(), id)?;
            let date = date(&answer);
            if let Some(date) = date {
                self.ahead.store(date as i64 - unix_seconds() as i64, Relaxed);
            }
            Ok(Leased { etag: etag(answer.etag()?)?, date })
        })
        .await
    }

    /// Also says when the call was sent.
    pub(crate) async fn renew(
        &self,
        path: &str,
        id: LeaseId,
        why: CallOptions,
    ) -> (Moment, Result<(), Fault>) {
        let blob = self.blob(path);
        self.call(Kind::Renew, why, async {
            let answer = blob.renew_lease(guid(id), None).await?;
            ours(answer.lease_id()?.as_deref(), id)
        })
        .await
    }

    pub(crate) async fn release(
        &self,
        path: &str,
        id: LeaseId,
        why: CallOptions,
    ) -> Result<(), Fault> {
        let blob = self.blob(path);
        let release = async {
            blob.release_lease(guid(id), None).await?;
            Ok(())
        };
        self.call(Kind::Release, why, release).await.1
    }

    /// Breaks whatever lease there is, after so many seconds or when its term is
    /// over, and says how long it lasts.
    pub(crate) async fn break_lease(
        &self,
        path: &str,
        within: Option<i32>,
        why: CallOptions,
    ) -> Result<Duration, Fault> {
        let blob = self.blob(path);
        let options = BlobClientBreakLeaseOptions { break_period: within, ..Default::default() };
        let broken = async {
            let answer = blob.break_lease(Some(options)).await?;
            Ok(Duration::from_secs(answer.lease_time()?.unwrap_or_default().max(0) as u64))
        };
        self.call(Kind::Break, why, broken).await.1
    }

    pub(crate) async fn read(&self, path: &str, why: CallOptions) -> Result<BlobState, Fault> {
        let blob = self.blob(path);
        let read = async {
            let answer = blob.get_properties(None).await?;
            Ok(BlobState {
                etag: etag(answer.etag()?)?,
                record: Record::from_metadata(&answer.metadata()?),
                leased: is_leased(answer.lease_state()?.as_ref()),
                date: date(&answer),
            })
        };
        self.call(Kind::Read, why, read).await.1
    }

    /// Writes the record, and the content if there is another, if the blob is
    /// still of that version and, if an id is given, its lease still is that
    /// one (safety rule 2).
    pub(crate) async fn write(
        &self,
        path: &str,
        record: &Record,
        content: Option<&[u8]>,
        id: Option<LeaseId>,
        version: &Etag,
        why: CallOptions,
    ) -> Result<Etag, Fault> {
        let blob = self.blob(path);
        if let Some(content) = content {
            let options = BlobClientUploadOptions {
                lease_id: id.map(guid),
                if_match: matching(version),
                metadata: Some(record.to_metadata()),
                parallel: SINGLE_PART,
                ..Default::default()
            };
            let write = async {
                let content = RequestContent::from(content.to_vec());
                etag(blob.upload(content, Some(options)).await?.etag)
            };
            return self.call(Kind::Write, why, write).await.1;
        }
        let options = BlobClientSetMetadataOptions {
            lease_id: id.map(guid),
            if_match: matching(version),
            ..Default::default()
        };
        let metadata = record.to_metadata();
        let write = async {
            let answer = blob.set_metadata(&metadata, Some(options)).await?;
            let written = answer.headers().get_optional_str(&HeaderName::from_static("etag"));
            etag(written.map(|text| Etag::from(text.to_owned())))
        };
        self.call(Kind::Write, why, write).await.1
    }

    /// The content of that version, which has that many bytes.
    pub(crate) async fn content(
        &self,
        path: &str,
        bytes: usize,
        version: &Etag,
        why: CallOptions,
    ) -> Result<Value, Fault> {
        let blob = self.blob(path);
        let options = BlobClientDownloadOptions {
            if_match: Some(version.clone()),
            parallel: SINGLE_PART,
            ..Default::default()
        };
        let read = async {
            let mut content = vec![0; bytes.min(LONGEST_VALUE)];
            let answer = blob.download_into(&mut content, Some(options)).await?;
            content.truncate(answer.len);
            Ok(content.into())
        };
        self.call(Kind::Read, why, read).await.1
    }

    /// Creates the blob if it is not there.
    pub(crate) async fn create(
        &self,
        path: &str,
        record: &Record,
        why: CallOptions,
    ) -> Result<Etag, Fault> {
        let blob = self.blob(path);
        let options = BlobClientUploadOptions {
            metadata: Some(record.to_metadata()),
            parallel: SINGLE_PART,
            ..Default::default()
        };
        let create = async {
            let empty = RequestContent::from(Vec::new());
            let answer = blob.upload(empty, Some(options.if_not_exists())).await?;
            etag(answer.etag)
        };
        self.call(Kind::Create, why, create).await.1
    }

    /// Writes an empty blob with this record, whether it exists or not.
    pub(crate) async fn put(
        &self,
        path: &str,
        record: &Record,
        why: CallOptions,
    ) -> Result<Etag, Fault> {
        let blob = self.blob(path);
        let options = BlobClientUploadOptions {
            metadata: Some(record.to_metadata()),
            parallel: SINGLE_PART,
            ..Default::default()
        };
        let put = async {
            let empty = RequestContent::from(Vec::new());
            etag(blob.upload(empty, Some(options)).await?.etag)
        };
        self.call(Kind::Write, why, put).await.1
    }

    /// Deletes the blob if it is still of that version and nobody leases it.
    pub(crate) async fn delete(
        &self,
        path: &str,
        version: &Etag,
        why: CallOptions,
    ) -> Result<(), Fault> {
        let blob = self.blob(path);
        let options =
            BlobClientDeleteOptions { if_match: Some(version.clone()), ..Default::default() };
        let delete = async {
            blob.delete(Some(options)).await?;
            Ok(())
        };
        self.call(Kind::Delete, why, delete).await.1
    }

    /// A page of the blobs whose paths begin so, and where to go on.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        marker: Option<String>,
        why: CallOptions,
    ) -> Result<(Vec<ListedBlob>, Option<String>), Fault> {
        let options = BlobContainerClientListBlobsOptions {
            include: Some(vec![ListBlobsIncludeItem::Metadata]),
            prefix: Some(prefix.to_owned()),
            maxresults: Some(LIST_PAGE_SIZE),
            marker,
            ..Default::default()
        };
        let list = async {
            let mut pages = self.account.container().list_blobs(Some(options))?.into_pages();
            let page = std::future::poll_fn(|cx| std::pin::Pin::new(&mut pages).poll_next(cx));
            let Some(page) = page.await else { return Ok((Vec::new(), None)) };
            let page = page?;
            let date = date(&page);
            let page = page.into_model()?;
            let blobs = page.blob_items.into_iter().filter_map(|blob| {
                let properties = blob.properties?;
                let metadata = blob.metadata.and_then(|metadata| metadata.values);
                let seconds = |at: azure_core::time::OffsetDateTime| at.unix_timestamp() as u64;
                Some(ListedBlob {
                    path: blob.name?,
                    seen: BlobState {
                        etag: quoted(properties.etag?),
                        record: Record::from_metadata(&metadata.unwrap_or_default()),
                        leased: is_leased(properties.lease_state.as_ref()),
                        date,
                    },
                    written_at: properties.last_modified.map(seconds),
                })
            });
            Ok((blobs.collect(), page.next_marker.filter(|marker| !marker.is_empty())))
        };
        self.call(Kind::List, why, list).await.1
    }

    /// Whether the container can be reached, as everybody may find out who may
    /// list it.
    pub(crate) async fn reach(&self, why: CallOptions) -> Result<(), Fault> {
        let options =
            BlobContainerClientListBlobsOptions { maxresults: Some(1), ..Default::default() };
        let reach = async {
            let mut pages = self.account.container().list_blobs(Some(options))?.into_pages();
            let page = std::future::poll_fn(|cx| std::pin::Pin::new(&mut pages).poll_next(cx));
            page.await.transpose()?;
            Ok(())
        };
        self.call(Kind::List, why, reach).await.1
    }

    fn blob(&self, path: &str) -> BlobClient {
        self.account.container().blob_client(path)
    }

    /// Waits for a turn, then sends. The time limit counts from then on.
    async fn call<T>(
        &self,
        kind: Kind,
        why: CallOptions,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> (Moment, Result<T, Fault>) {
        let permit = self.budget.enter(kind, why.cause).await;
        let sent = Moment::now();
        let answer = tokio::select! {
            biased;
            answer = call => answer.map_err(Fault::from),
            () = sleep(why.limit), if !mutant::is(Mutant::EndlessCall) => {
                let limit = humantime::format_duration(why.limit);
                Err(Fault::Unclear { why: format!("storage call timed out after {limit}") })
            }
        };
        drop(permit);
        if let Err(Fault::Busy { retry_after }) = &answer {
            self.budget.rest(*retry_after);
        }
        self.health.note(answer.as_ref().err());
        (sent, answer)
    }
}

/// What can go wrong inside of a call.
enum CallError {
    Service(azure_core::Error),
    Fault(Fault),
}

impl From<azure_core::Error> for CallError {
    fn from(error: azure_core::Error) -> Self {
        Self::Service(error)
    }
}

impl From<CallError> for Fault {
    fn from(wrong: CallError) -> Self {
        match wrong {
            CallError::Service(error) => error.into(),
            CallError::Fault(fault) => fault,
        }
    }
}

/// As the service takes ids: a GUID in lower case.
pub(crate) fn guid(id: LeaseId) -> String {
    let bits = u128::from_be_bytes(id.to_bytes());
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        bits >> 80 & 0xffff,
        bits >> 64 & 0xffff,
        bits >> 48 & 0xffff,
        bits & 0xffff_ffff_ffff
    )
}

/// An answer that names another lease speaks of that one (safety rule 9).
fn ours(answered: Option<&str>, id: LeaseId) -> Result<(), CallError> {
    if answered.is_some_and(|answered| answered.eq_ignore_ascii_case(&guid(id)))
        || mutant::is(Mutant::AnyLeaseId)
    {
        return Ok(());
    }
    Err(CallError::Fault(Fault::NotOurs { why: "the service answered for another lease" }))
}

/// Only the version that was seen may be replaced (safety rule 2).
fn matching(version: &Etag) -> Option<Etag> {
    (!mutant::is(Mutant::WriteWithoutMatch)).then(|| version.clone())
}

fn etag(etag: Option<Etag>) -> Result<Etag, CallError> {
    etag.ok_or_else(|| {
        CallError::Fault(Fault::Unclear { why: "the service's answer has no ETag".to_owned() })
    })
}

/// Listings leave out the quotes.
fn quoted(etag: Etag) -> Etag {
    let text = etag.to_string();
    if text.starts_with('"') { etag } else { Etag::from(format!("\"{text}\"")) }
}

const fn is_leased(state: Option<&LeaseState>) -> bool {
    matches!(state, Some(LeaseState::Leased | LeaseState::Breaking))
}

/// The service's clock.
fn date<T, F>(answer: &Response<T, F>) -> Option<u64> {
    let text = answer.headers().get_optional_str(&HeaderName::from_static("date"))?;
    let at = azure_core::time::parse_rfc7231(text).ok()?;
    u64::try_from(at.unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_guids() {
        let id = LeaseId::new(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(guid(id), "01234567-89ab-cdef-0123-456789abcdef");
        assert!(ours(Some("01234567-89AB-cdef-0123-456789abcdef"), id).is_ok());
        assert!(ours(Some("11234567-89ab-cdef-0123-456789abcdef"), id).is_err());
        assert!(ours(None, id).is_err());
    }
}

//! Calls on a lock's blob, one function each.

use std::{num::NonZero, time::Duration};

use azure_core::http::{Etag, RequestContent, headers::HeaderName};
use azure_storage_blob::models::{
    BlobClientAcquireLeaseOptions, BlobClientAcquireLeaseResultHeaders,
    BlobClientBreakLeaseResultHeaders, BlobClientDeleteOptions, BlobClientDownloadOptions,
    BlobClientGetPropertiesResultHeaders, BlobClientRenewLeaseResultHeaders,
    BlobClientSetMetadataOptions, BlobClientUploadOptions, LeaseState,
};

use super::{Blobs, CallError, CallOptions, date, fault::Fault, limiter::Kind};
use crate::protocol::record::{InvalidRecord, Record};
use leasehold_rules::is_own_lease;
use leasehold_store::{LeaseId, MAX_VALUE_BYTES, Value};
use leasehold_time::Moment;

/// Upload and download of a record as one part. Otherwise, the SDK asks the operating
/// system for the number of processors at each call.
const SINGLE_PART: Option<NonZero<usize>> = NonZero::new(1);

/// Acquired lease.
#[derive(Debug)]
pub(crate) struct Leased {
    /// Version of the blob, which a lease does not change.
    pub(crate) etag: Etag,
    /// Storage clock, in seconds since 1970.
    pub(crate) date: Option<u64>,
}

/// Blob as it was read.
#[derive(Debug)]
pub(crate) struct BlobState {
    pub(crate) etag: Etag,
    pub(crate) record: Result<Record, InvalidRecord>,
    pub(crate) leased: bool,
    /// Storage clock, in seconds since 1970.
    pub(crate) date: Option<u64>,
}

impl Blobs {
    /// Acquires a lease. Also returns when the call was sent.
    pub(crate) async fn acquire(
        &self,
        path: &str,
        id: LeaseId,
        duration: Duration,
        options: CallOptions,
    ) -> (Moment, Result<Leased, Fault>) {
        let blob = self.blob(path);
        let sdk_options = BlobClientAcquireLeaseOptions {
            proposed_lease_id: Some(guid(id)),
            ..Default::default()
        };
        self.call(Kind::Acquire, options, async {
            let seconds = duration.as_secs() as i32;
            let answer = blob.acquire_lease(seconds, Some(sdk_options)).await?;
            check_lease_id(answer.lease_id()?.as_deref(), id)?;
            let date = date(&answer);
            if let Some(date) = date {
                self.set_service_clock(date);
            }
            Ok(Leased { etag: etag(answer.etag()?)?, date })
        })
        .await
    }

    /// Renews a lease. Also returns when the call was sent.
    pub(crate) async fn renew(
        &self,
        path: &str,
        id: LeaseId,
        options: CallOptions,
    ) -> (Moment, Result<(), Fault>) {
        let blob = self.blob(path);
        self.call(Kind::Renew, options, async {
            let answer = blob.renew_lease(guid(id), None).await?;
            check_lease_id(answer.lease_id()?.as_deref(), id)
        })
        .await
    }

    /// Releases a lease.
    pub(crate) async fn release(
        &self,
        path: &str,
        id: LeaseId,
        options: CallOptions,
    ) -> Result<(), Fault> {
        let blob = self.blob(path);
        let release = async {
            blob.release_lease(guid(id), None).await?;
            Ok(())
        };
        self.call(Kind::Release, options, release).await.1
    }

    /// Breaks the lease of a blob, which ends when it would expire. Returns the time
    /// until then.
    pub(crate) async fn break_lease(
        &self,
        path: &str,
        options: CallOptions,
    ) -> Result<Duration, Fault> {
        let blob = self.blob(path);
        let broken = async {
            let answer = blob.break_lease(None).await?;
            Ok(Duration::from_secs(answer.lease_time()?.unwrap_or_default().max(0) as u64))
        };
        self.call(Kind::Break, options, broken).await.1
    }

    /// Reads the version and the record.
    pub(crate) async fn read(&self, path: &str, options: CallOptions) -> Result<BlobState, Fault> {
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
        self.call(Kind::Read, options, read).await.1
    }

    /// Writes the record, and the content if there is a new one. Fails if the blob
    /// has another version or, with an ID, another lease (safety rule 2).
    pub(crate) async fn write(
        &self,
        path: &str,
        record: &Record,
        content: Option<&[u8]>,
        id: Option<LeaseId>,
        version: &Etag,
        options: CallOptions,
    ) -> Result<Etag, Fault> {
        let blob = self.blob(path);
        if let Some(content) = content {
            let sdk_options = BlobClientUploadOptions {
                lease_id: id.map(guid),
                if_match: Some(version.clone()),
                metadata: Some(record.to_metadata()),
                parallel: SINGLE_PART,
                ..Default::default()
            };
            let write = async {
                let content = RequestContent::from(content.to_vec());
                etag(blob.upload(content, Some(sdk_options)).await?.etag)
            };
            return self.call(Kind::Write, options, write).await.1;
        }
        let sdk_options = BlobClientSetMetadataOptions {
            lease_id: id.map(guid),
            if_match: Some(version.clone()),
            ..Default::default()
        };
        let metadata = record.to_metadata();
        let write = async {
            let answer = blob.set_metadata(&metadata, Some(sdk_options)).await?;
            let written = answer.headers().get_optional_str(&HeaderName::from_static("etag"));
            etag(written.map(|text| Etag::from(text.to_owned())))
        };
        self.call(Kind::Write, options, write).await.1
    }

    /// Reads the content of a version, which has this many bytes.
    pub(crate) async fn content(
        &self,
        path: &str,
        bytes: usize,
        version: &Etag,
        options: CallOptions,
    ) -> Result<Value, Fault> {
        let blob = self.blob(path);
        let sdk_options = BlobClientDownloadOptions {
            if_match: Some(version.clone()),
            parallel: SINGLE_PART,
            ..Default::default()
        };
        let read = async {
            let mut content = vec![0; bytes.min(MAX_VALUE_BYTES)];
            let answer = blob.download_into(&mut content, Some(sdk_options)).await?;
            content.truncate(answer.len);
            Ok(content.into())
        };
        self.call(Kind::Read, options, read).await.1
    }

    /// Creates the blob if it does not exist.
    pub(crate) async fn create(
        &self,
        path: &str,
        record: &Record,
        options: CallOptions,
    ) -> Result<Etag, Fault> {
        let blob = self.blob(path);
        let sdk_options = BlobClientUploadOptions {
            metadata: Some(record.to_metadata()),
            parallel: SINGLE_PART,
            ..Default::default()
        };
        let create = async {
            let empty = RequestContent::from(Vec::new());
            let answer = blob.upload(empty, Some(sdk_options.if_not_exists())).await?;
            etag(answer.etag)
        };
        self.call(Kind::Create, options, create).await.1
    }

    /// Writes an empty blob with this record, whether it exists or not.
    pub(crate) async fn put(
        &self,
        path: &str,
        record: &Record,
        options: CallOptions,
    ) -> Result<Etag, Fault> {
        let blob = self.blob(path);
        let sdk_options = BlobClientUploadOptions {
            metadata: Some(record.to_metadata()),
            parallel: SINGLE_PART,
            ..Default::default()
        };
        let put = async {
            let empty = RequestContent::from(Vec::new());
            etag(blob.upload(empty, Some(sdk_options)).await?.etag)
        };
        self.call(Kind::Write, options, put).await.1
    }

    /// Deletes the blob if it has this version and no lease.
    pub(crate) async fn delete(
        &self,
        path: &str,
        version: &Etag,
        options: CallOptions,
    ) -> Result<(), Fault> {
        let blob = self.blob(path);
        let sdk_options =
            BlobClientDeleteOptions { if_match: Some(version.clone()), ..Default::default() };
        let delete = async {
            blob.delete(Some(sdk_options)).await?;
            Ok(())
        };
        self.call(Kind::Delete, options, delete).await.1
    }
}

/// Lease ID as the storage expects it: a GUID in lower case.
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

/// Refuses an answer that names another lease (safety rule 9).
fn check_lease_id(answered: Option<&str>, id: LeaseId) -> Result<(), CallError> {
    if is_own_lease(answered, &guid(id)) {
        return Ok(());
    }
    Err(CallError::Fault(Fault::NotOurs { why: "the service answered for another lease" }))
}

fn etag(etag: Option<Etag>) -> Result<Etag, CallError> {
    etag.ok_or_else(|| {
        CallError::Fault(Fault::Unknown { why: "the service's answer has no ETag".to_owned() })
    })
}

/// Reports whether a blob has a lease.
pub(super) const fn is_leased(state: Option<&LeaseState>) -> bool {
    matches!(state, Some(LeaseState::Leased | LeaseState::Breaking))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_guids() {
        let id = LeaseId::new(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(guid(id), "01234567-89ab-cdef-0123-456789abcdef");
        assert!(check_lease_id(Some("01234567-89AB-cdef-0123-456789abcdef"), id).is_ok());
        assert!(check_lease_id(Some("11234567-89ab-cdef-0123-456789abcdef"), id).is_err());
        assert!(check_lease_id(None, id).is_err());
    }
}

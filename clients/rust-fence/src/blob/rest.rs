//! REST calls for one blob.

use std::{collections::BTreeMap, sync::Arc};

use azure_core::http::{
    Method, Request,
    headers::{Headers, IF_MATCH},
};
use leasehold_azure_account::{Account, Fault, Response, Service, ServiceKind};

use super::{
    Conflict, Content, Error, FencedBlob, Place, Upload, install::install, record::Record,
};
use crate::{
    ETag, LockToken,
    fault::{header, success},
    retry::Retries,
};

const METADATA: &str = "x-ms-meta-";

/// A blob of a storage account. Cheap to clone.
///
/// **The methods of this type check no token.** Use them to read, and to write
/// blobs without a fence. If a lock protects the blob, all programs must write
/// through [`fenced`](Self::fenced).
///
/// Every call has a timeout ([`Account::call_timeout`]). Reads are retried a few
/// times if the service does not respond.
#[derive(Clone, Debug)]
pub struct Blob {
    service: Arc<Service>,
    place: Place,
}

/// Version and metadata of a blob that were read.
#[derive(Clone, Debug)]
pub(super) struct BlobState {
    pub(super) etag: ETag,
    pub(super) record: Record,
    pub(super) metadata: BTreeMap<String, String>,
}

/// Condition of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expect<'a> {
    /// None.
    Anything,
    /// The blob does not exist.
    Nothing,
    /// The blob has this ETag.
    Version(&'a ETag),
}

/// Change that a write makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// Complete content and metadata.
    Content(&'a Upload),
    /// Metadata of the fence only. Carries the caller's metadata, because the
    /// service replaces all metadata together.
    Record(&'a BTreeMap<String, String>),
}

impl Blob {
    /// Creates a handle of the blob with this name. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is not valid.
    pub fn new(account: &Account, container: &str, blob: &str) -> Result<Self, Error> {
        let place = Place::new(account.name(), container, blob)?;
        let service = account
            .service(ServiceKind::Blob)
            .map_err(|error| Error::invalid(&place, error.to_string()))?;
        Ok(Self { service: Arc::new(service), place })
    }

    /// The container's name.
    #[must_use]
    pub fn container(&self) -> &str {
        &self.place.container
    }

    /// The blob's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.place.blob
    }

    /// Installs this holder's fence: from then on, no earlier holder can write to
    /// the blob. Makes two storage calls. If the blob does not exist, an empty one
    /// is created and treated as missing: see [`FencedBlob::delete`]. Pass a
    /// `&Guard`, a `&Leadership` or [`LockToken::from_env`].
    ///
    /// # Errors
    /// [`Error::Fenced`] if a newer holder has installed its fence; otherwise as
    /// [`FencedBlob::write`].
    pub async fn fenced(&self, lock_token: impl Into<LockToken>) -> Result<FencedBlob, Error> {
        let lock_token = lock_token.into();
        let place = self.place.with_token(lock_token.token());
        let blob = Self { service: Arc::clone(&self.service), place };
        let state = install(&blob, &lock_token).await?;
        Ok(FencedBlob::new(blob, lock_token, state))
    }

    /// Creates the container if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Invalid`] if the credential does not permit
    /// it.
    pub async fn create_container(&self) -> Result<(), Error> {
        let mut url = self.service.url(&self.place.container);
        url.query_pairs_mut().append_pair("restype", "container");
        match self.send_with_retries(&Request::new(url, Method::Put)).await {
            Ok(_) => Ok(()),
            Err(Fault::Refused { status: 409, code, .. }) if code == "ContainerAlreadyExists" => {
                Ok(())
            }
            Err(fault) => Err(Error::of(&fault, &self.place, true)),
        }
    }

    /// Reads the blob. Returns `None` if it does not exist, or was deleted by
    /// [`FencedBlob::delete`].
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Invalid`] if the container does not exist or
    /// the credential does not permit the read; [`Error::NeedsOperator`].
    pub async fn read(&self) -> Result<Option<Content>, Error> {
        let read = self.fetch().await?;
        Ok(read.filter(|(state, _)| !state.record.gone).map(|(_, content)| content))
    }

    /// Replaces the blob **without a fence** and without a condition: the last
    /// writer wins. Removes the fence of a fenced blob.
    ///
    /// # Errors
    /// As [`FencedBlob::write`], but never [`Error::Fenced`].
    pub async fn overwrite(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put_unfenced(&upload.into(), Expect::Anything).await
    }

    /// Creates the blob **without a fence** if it does not exist.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it exists; otherwise as [`overwrite`](Self::overwrite).
    pub async fn create(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put_unfenced(&upload.into(), Expect::Nothing).await
    }

    /// Replaces the blob **without a fence** if it still has this ETag. Removes the
    /// fence of a fenced blob; [`update`](Self::update) refuses such a blob.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the blob has changed; otherwise as
    /// [`overwrite`](Self::overwrite).
    pub async fn replace(&self, upload: impl Into<Upload>, etag: &ETag) -> Result<ETag, Error> {
        self.put_unfenced(&upload.into(), Expect::Version(etag)).await
    }

    async fn put_unfenced(&self, upload: &Upload, expect: Expect<'_>) -> Result<ETag, Error> {
        upload.check(&self.place)?;
        let written = self.put(&Change::Content(upload), None, expect, None).await;
        written.map_err(|fault| Error::of(&fault, &self.place, true))
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Reads the version and the metadata. Retries a few times.
    pub(super) async fn read_state(&self) -> Result<Option<BlobState>, Error> {
        let mut retries = Retries::for_service();
        loop {
            match self.try_read_state().await? {
                Ok(state) => return Ok(state),
                Err(fault)
                    if fault.may_pass() && retries.next_attempt(fault.retry_after()).await => {}
                Err(fault) => return Err(Error::of(&fault, &self.place, false)),
            }
        }
    }

    pub(super) async fn try_read_state(&self) -> Result<Result<Option<BlobState>, Fault>, Error> {
        let request = Request::new(self.service.url(&self.place.path()), Method::Head);
        Ok(match self.send(request).await {
            Ok(response) => Ok(Some(self.state(&response.headers)?)),
            Err(fault) if is_missing(&fault) => Ok(None),
            Err(fault) => Err(fault),
        })
    }

    /// Reads the version, the metadata and the content. Retries a few times.
    pub(super) async fn fetch(&self) -> Result<Option<(BlobState, Content)>, Error> {
        let request = Request::new(self.service.url(&self.place.path()), Method::Get);
        let response = match self.send_with_retries(&request).await {
            Ok(response) => response,
            Err(fault) if is_missing(&fault) => return Ok(None),
            Err(fault) => return Err(Error::of(&fault, &self.place, false)),
        };
        let state = self.state(&response.headers)?;
        let content = Content {
            content_type: header(&response, "content-type").unwrap_or_default().to_owned(),
            metadata: state.metadata.clone(),
            etag: state.etag.clone(),
            bytes: response.body,
        };
        Ok(Some((state, content)))
    }

    fn state(&self, headers: &Headers) -> Result<BlobState, Error> {
        let named = || headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut metadata: BTreeMap<_, _> = named()
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(METADATA)?.to_owned(), value.to_owned()))
            })
            .collect();
        let etag = named().find_map(|(name, value)| (name == "etag").then_some(value));
        let etag = etag.ok_or_else(|| {
            let why = "the response has no ETag".to_owned();
            Error::of(&Fault::Unclear { why }, &self.place, false)
        })?;
        let record = Record::take(&mut metadata, &self.place)?;
        Ok(BlobState { etag: ETag::new(etag), record, metadata })
    }

    /// Makes one attempt to write.
    pub(super) async fn put(
        &self,
        change: &Change<'_>,
        record: Option<&Record>,
        expect: Expect<'_>,
        lease: Option<&str>,
    ) -> Result<ETag, Fault> {
        let mut url = self.service.url(&self.place.path());
        if matches!(change, Change::Record(_)) {
            url.query_pairs_mut().append_pair("comp", "metadata");
        }
        let mut request = Request::new(url, Method::Put);
        let metadata = match change {
            Change::Content(upload) => {
                request.insert_header("x-ms-blob-type", "BlockBlob");
                request.insert_header("x-ms-blob-content-type", upload.content_type.clone());
                request.set_body(upload.bytes.clone());
                &upload.metadata
            }
            Change::Record(metadata) => *metadata,
        };
        let reserved = record.map(Record::pairs).unwrap_or_default();
        let reserved = reserved.into_iter().map(|(name, value)| (name.to_owned(), value));
        for (name, value) in metadata.clone().into_iter().chain(reserved) {
            request.insert_header(format!("{METADATA}{name}"), value);
        }
        match expect {
            Expect::Anything => {}
            Expect::Nothing => request.insert_header("if-none-match", "*"),
            Expect::Version(etag) => request.insert_header(IF_MATCH, etag.as_str().to_owned()),
        }
        if let Some(lease) = lease {
            request.insert_header("x-ms-lease-id", lease.to_owned());
        }
        let response = self.send(request).await?;
        let etag = header(&response, "etag")
            .ok_or_else(|| Fault::Unclear { why: "the response has no ETag".to_owned() })?;
        Ok(ETag::new(etag))
    }

    /// Makes a lease call. Returns the lease ID of the response.
    pub(super) async fn lease_call(
        &self,
        action: &'static str,
        more: &[(&'static str, String)],
    ) -> Result<Option<String>, Fault> {
        let mut url = self.service.url(&self.place.path());
        url.query_pairs_mut().append_pair("comp", "lease");
        let mut request = Request::new(url, Method::Put);
        request.insert_header("x-ms-lease-action", action);
        for (name, value) in more {
            request.insert_header(*name, value.clone());
        }
        let response = self.send(request).await?;
        Ok(header(&response, "x-ms-lease-id").map(str::to_owned))
    }

    /// Sends an idempotent request. Retries transient faults a few times.
    async fn send_with_retries(&self, request: &Request) -> Result<Response, Fault> {
        let mut retries = Retries::for_service();
        loop {
            match self.send(request.clone()).await {
                Err(fault)
                    if fault.may_pass() && retries.next_attempt(fault.retry_after()).await => {}
                answer => return answer,
            }
        }
    }

    async fn send(&self, request: Request) -> Result<Response, Fault> {
        success(self.service.send(request).await?)
    }
}

impl BlobState {
    /// Refuses a fenced blob, for calls that would bypass the fence.
    pub(super) fn refuse_if_fenced(&self, place: &Place) -> Result<(), Error> {
        let Some((_, lock)) = &self.record.fence else { return Ok(()) };
        let message = format!(
            "the blob is fenced by lock {lock:?}, which this call would bypass. Acquire that lock, \
             and write through Blob::fenced"
        );
        Err(Error::invalid(place, message))
    }
}

/// Returns true if the container exists, but the blob does not.
fn is_missing(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 404, code, .. } if code == "BlobNotFound")
}

/// Returns true if the condition of a write failed, so that it was not applied.
pub(super) fn is_contended(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 409 | 412, code, .. }
        if ["BlobAlreadyExists", "ConditionNotMet"].contains(&code.as_str()))
}

impl Expect<'_> {
    /// Returns the conflict if the condition failed. `there`: whether the blob
    /// exists.
    pub(super) const fn conflict(self, there: bool) -> Conflict {
        match (self, there) {
            (Self::Nothing, true) => Conflict::Exists,
            (_, false) => Conflict::Missing,
            _ => Conflict::Changed,
        }
    }
}

//! A blob, by its REST interface.

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
/// **Nothing here looks at tokens.** Let all programs write through
/// [`fenced`](Self::fenced) to what a lock protects. This is for reading, and
/// for blobs that nothing fences.
///
/// Every call has a time limit ([`Account::call_timeout`]). Reads are repeated a
/// few times if the service does not answer.
#[derive(Clone, Debug)]
pub struct Blob {
    service: Arc<Service>,
    place: Place,
}

/// A version of a blob, as it was seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) etag: ETag,
    pub(super) record: Record,
    pub(super) metadata: BTreeMap<String, String>,
}

/// What a write expects to find.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expect<'a> {
    Anything,
    Nothing,
    Version(&'a ETag),
}

/// What a write changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// All of the blob.
    Content(&'a Upload),
    /// The fence's own metadata; these are the user's.
    Record(&'a BTreeMap<String, String>),
}

impl Blob {
    /// A blob of this name. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no blob can have this name.
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

    /// Puts up this holder's fence: from then on no earlier holder can write to
    /// the blob. Costs two calls. If there is no such blob, an empty one is
    /// created that counts as none: see [`FencedBlob::delete`]. Take a
    /// `&Guard` or a `&Leadership`, or [`LockToken::from_env`].
    ///
    /// # Errors
    /// [`Error::Fenced`] if a newer holder was there already; else as
    /// [`FencedBlob::write`].
    pub async fn fenced(&self, fence: impl Into<LockToken>) -> Result<FencedBlob, Error> {
        let fence = fence.into();
        let place = self.place.with_token(fence.token());
        let blob = Self { service: Arc::clone(&self.service), place };
        let seen = install(&blob, &fence).await?;
        Ok(FencedBlob::new(blob, fence, seen))
    }

    /// Creates the container if it is not there.
    ///
    /// # Errors
    /// [`Error::Unavailable`], or [`Error::Invalid`] if it is not allowed.
    pub async fn create_container(&self) -> Result<(), Error> {
        let mut url = self.service.url(&self.place.container);
        url.query_pairs_mut().append_pair("restype", "container");
        match self.repeated(&Request::new(url, Method::Put)).await {
            Ok(_) => Ok(()),
            Err(Fault::Refused { status: 409, code, .. }) if code == "ContainerAlreadyExists" => {
                Ok(())
            }
            Err(fault) => Err(Error::of(&fault, &self.place, true)),
        }
    }

    /// Reads the blob; none if it is not there, or was deleted through a guard.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Invalid`] if the container is not there
    /// or it is not allowed; [`Error::NeedsOperator`].
    pub async fn read(&self) -> Result<Option<Content>, Error> {
        let read = self.fetch().await?;
        Ok(read.filter(|(seen, _)| !seen.record.gone).map(|(_, content)| content))
    }

    /// Writes all of the blob, **without a fence** and whatever is there: the
    /// last writer wins. If the blob was fenced, the fence is lost.
    ///
    /// # Errors
    /// As [`FencedBlob::write`], except that nobody is fenced.
    pub async fn overwrite(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put_plainly(&upload.into(), Expect::Anything).await
    }

    /// Writes all of the blob, **without a fence**, if it is not there.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it is; else as [`overwrite`](Self::overwrite).
    pub async fn create(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put_plainly(&upload.into(), Expect::Nothing).await
    }

    /// Writes all of the blob, **without a fence**, if it has not changed since
    /// it had this version. If the blob was fenced, the fence is lost:
    /// [`update`](Self::update) sees to that.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it has; else as [`overwrite`](Self::overwrite).
    pub async fn replace(&self, upload: impl Into<Upload>, etag: &ETag) -> Result<ETag, Error> {
        self.put_plainly(&upload.into(), Expect::Version(etag)).await
    }

    async fn put_plainly(&self, upload: &Upload, expect: Expect<'_>) -> Result<ETag, Error> {
        upload.check(&self.place)?;
        let written = self.put(&Change::Content(upload), None, expect, None).await;
        written.map_err(|fault| Error::of(&fault, &self.place, true))
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// What is there, without its content. Repeated a few times.
    pub(super) async fn look(&self) -> Result<Option<Seen>, Error> {
        let mut retries = Retries::for_service();
        loop {
            match self.look_once().await? {
                Ok(seen) => return Ok(seen),
                Err(fault) if fault.may_pass() && retries.again(fault.retry_after()).await => {}
                Err(fault) => return Err(Error::of(&fault, &self.place, false)),
            }
        }
    }

    pub(super) async fn look_once(&self) -> Result<Result<Option<Seen>, Fault>, Error> {
        let request = Request::new(self.service.url(&self.place.path()), Method::Head);
        Ok(match self.send(request).await {
            Ok(answer) => Ok(Some(self.seen(&answer.headers)?)),
            Err(fault) if is_missing(&fault) => Ok(None),
            Err(fault) => Err(fault),
        })
    }

    /// What is there, with its content.
    pub(super) async fn fetch(&self) -> Result<Option<(Seen, Content)>, Error> {
        let request = Request::new(self.service.url(&self.place.path()), Method::Get);
        let answer = match self.repeated(&request).await {
            Ok(answer) => answer,
            Err(fault) if is_missing(&fault) => return Ok(None),
            Err(fault) => return Err(Error::of(&fault, &self.place, false)),
        };
        let seen = self.seen(&answer.headers)?;
        let content = Content {
            content_type: header(&answer, "content-type").unwrap_or_default().to_owned(),
            metadata: seen.metadata.clone(),
            etag: seen.etag.clone(),
            bytes: answer.body,
        };
        Ok(Some((seen, content)))
    }

    fn seen(&self, headers: &Headers) -> Result<Seen, Error> {
        let named = || headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut metadata: BTreeMap<_, _> = named()
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(METADATA)?.to_owned(), value.to_owned()))
            })
            .collect();
        let etag = named().find_map(|(name, value)| (name == "etag").then_some(value));
        let etag = etag.ok_or_else(|| {
            let why = "the service's answer has no ETag".to_owned();
            Error::of(&Fault::Unclear { why }, &self.place, false)
        })?;
        let record = Record::take(&mut metadata, &self.place)?;
        Ok(Seen { etag: ETag::new(etag), record, metadata })
    }

    /// One attempt to write.
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
        let own = record.map(Record::pairs).unwrap_or_default();
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        for (name, value) in metadata.clone().into_iter().chain(own) {
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
        let answer = self.send(request).await?;
        let etag = header(&answer, "etag")
            .ok_or_else(|| Fault::Unclear { why: "the service's answer has no ETag".to_owned() })?;
        Ok(ETag::new(etag))
    }

    /// A call about the blob's lease. The answer's lease id.
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
        let answer = self.send(request).await?;
        Ok(header(&answer, "x-ms-lease-id").map(str::to_owned))
    }

    /// Sends what may be sent again, again if the fault is one that may pass.
    async fn repeated(&self, request: &Request) -> Result<Response, Fault> {
        let mut retries = Retries::for_service();
        loop {
            match self.send(request.clone()).await {
                Err(fault) if fault.may_pass() && retries.again(fault.retry_after()).await => {}
                answer => return answer,
            }
        }
    }

    async fn send(&self, request: Request) -> Result<Response, Fault> {
        success(self.service.send(request).await?)
    }
}

impl Seen {
    /// The token and the lock that guard it, for those who write past them.
    pub(super) fn refuse_if_guarded(&self, place: &Place) -> Result<(), Error> {
        let Some((_, lock)) = &self.record.fence else { return Ok(()) };
        let message = format!(
            "the blob is guarded by the lock {lock:?}, and this would write past it. Take that \
             lock, and write through Blob::fenced"
        );
        Err(Error::invalid(place, message))
    }
}

/// Whether there is a container, but not this blob in it.
fn is_missing(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 404, code, .. } if code == "BlobNotFound")
}

/// Whether the blob was not as expected: nothing was done.
pub(super) fn is_contended(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 409 | 412, code, .. }
        if ["BlobAlreadyExists", "ConditionNotMet"].contains(&code.as_str()))
}

impl Expect<'_> {
    /// What it means if there is something else.
    pub(super) const fn conflict(self, there: bool) -> Conflict {
        match (self, there) {
            (Self::Nothing, true) => Conflict::Exists,
            (_, false) => Conflict::Missing,
            _ => Conflict::Changed,
        }
    }
}

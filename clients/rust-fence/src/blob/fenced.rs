//! Fenced blob: a blob whose writes present a fencing token.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::Bytes;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    Blob, Conflict, Content, Error, Upload,
    install::fence_is_gone,
    record::{Record, new_write_id},
    rest::{BlobState, Change, Expect},
    write::{Outcome, Write},
};
use crate::{ETag, LockToken, Written, retry::Retries};

/// A blob with this holder's fence installed. The storage refuses its writes
/// after a newer holder has installed a fence. Returned by [`Blob::fenced`].
/// Cheap to clone; clones share the known version of the blob.
#[derive(Clone)]
pub struct FencedBlob(Arc<Shared>);

struct Shared {
    blob: Blob,
    lock_token: LockToken,
    /// Locked during a write, so that writes of this holder are sequential.
    held: Mutex<Held>,
}

/// State of the fenced blob that writes change.
struct Held {
    /// Last known version of the blob.
    state: BlobState,
    /// Set while a write is in flight. Remains set if the write was canceled or
    /// its outcome is unknown: the storage may still apply the write.
    unknown_write: bool,
}

impl FencedBlob {
    pub(super) fn new(blob: Blob, lock_token: LockToken, state: BlobState) -> Self {
        let held = Mutex::new(Held { state, unknown_write: false });
        Self(Arc::new(Shared { blob, lock_token, held }))
    }

    /// Lock and token that the writes present.
    #[must_use]
    pub fn lock_token(&self) -> &LockToken {
        &self.0.lock_token
    }

    /// Reads the blob. Returns `None` if the blob does not exist. Fails with
    /// [`Error::Fenced`] for a stale holder.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn read(&self) -> Result<Option<Content>, Error> {
        let Shared { blob, lock_token, .. } = &*self.0;
        let mut held = self.resolved().await?;
        let Some((state, content)) = blob.fetch().await? else {
            return Err(fence_is_gone(blob.place()));
        };
        state.check(blob.place(), lock_token, Written::No)?;
        let gone = state.record.gone;
        held.state = state;
        Ok((!gone).then_some(content))
    }

    /// Replaces the content of the blob, regardless of its current content.
    /// Writes nothing if a newer holder has taken over. Writes of this holder are
    /// sequential. If a response is lost, the call determines the outcome and
    /// retries a few times.
    ///
    /// Cancel safety: after the future is dropped, the outcome of the write is
    /// unknown. The next read or write resolves it first.
    ///
    /// # Errors
    /// - [`Error::Fenced`]: stop, a newer holder has taken over.
    /// - [`Error::Conflict`]: the blob is not in the expected state, or another
    ///   client has leased it.
    /// - [`Error::Unavailable`]: retry; `written` states the outcome.
    /// - [`Error::Invalid`]: change the call. Limits are checked before anything is
    ///   sent.
    /// - [`Error::NeedsOperator`]: the fence is missing or invalid.
    pub async fn write(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put(&upload.into(), false, Expect::Anything).await
    }

    /// Replaces the content of the blob if it still has this ETag.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn replace(&self, upload: impl Into<Upload>, etag: &ETag) -> Result<ETag, Error> {
        self.put(&upload.into(), false, Expect::Version(etag)).await
    }

    /// Creates the blob if it does not exist.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn create(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put(&upload.into(), false, Expect::Nothing).await
    }

    /// Appends bytes by reading the blob and writing it completely; creates the
    /// blob if it does not exist. For small blobs. The service's own append blobs
    /// can't be fenced: an appended block can't carry the write ID that resolves a
    /// lost response.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn append(&self, bytes: impl Into<Bytes>) -> Result<ETag, Error> {
        let bytes = bytes.into();
        let mut contention = Retries::for_contention();
        loop {
            let written = match self.read().await? {
                Some(content) => {
                    let longer = [&content.bytes[..], &bytes[..]].concat();
                    self.replace(content.with(longer), &content.etag).await
                }
                None => self.create(bytes.clone()).await,
            };
            match written {
                Err(Error::Conflict {
                    conflict: Conflict::Changed | Conflict::Exists | Conflict::Missing,
                    ..
                }) if contention.next_attempt(Duration::ZERO).await => {}
                written => return written,
            }
        }
    }

    /// Deletes the blob, but not its fence. An empty blob with the metadata
    /// `leaseholdgone` remains; this module treats it as missing, and other
    /// programs see an empty blob. Without it, a stale holder could create the
    /// blob again, because no token would be left to compare with. A fence in
    /// another blob could not be compared in one step with the write.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the blob does not exist; otherwise as
    /// [`write`](Self::write).
    pub async fn delete(&self) -> Result<(), Error> {
        self.put(&Upload::new(""), true, Expect::Anything).await.map(drop)
    }

    async fn put(&self, upload: &Upload, gone: bool, expect: Expect<'_>) -> Result<ETag, Error> {
        let Shared { blob, lock_token, .. } = &*self.0;
        let place = blob.place();
        upload.check(place)?;
        let mut contention = Retries::for_contention();
        let mut held = self.resolved().await?;
        loop {
            let there = !held.state.record.gone;
            let expected = match expect {
                Expect::Anything => there || !gone,
                Expect::Nothing => !there,
                Expect::Version(etag) => there && held.state.etag == *etag,
            };
            if !expected {
                // Another user of the same token may have written since.
                let state = self.read_state().await?;
                if state.etag == held.state.etag {
                    return Err(Error::conflict(place, expect.conflict(there)));
                }
                state.check(place, lock_token, Written::No)?;
                held.state = state;
                if !contention.next_attempt(Duration::ZERO).await {
                    return Err(Error::conflict(place, Conflict::Changed));
                }
                continue;
            }
            let write_id = new_write_id();
            let record = Record { gone, ..held.state.record.after(&write_id) };
            match self.attempt(&mut held, Change::Content(upload), record, &write_id).await? {
                Some(etag) => return Ok(etag),
                // Another user of the same token has written.
                None if contention.next_attempt(Duration::ZERO).await => {}
                None => {
                    let message = "too many concurrent writes with the same token";
                    return Err(Error::unavailable(place, message, Written::No));
                }
            }
        }
    }

    /// Makes one write, conditional on the known version. Returns `None` if
    /// another user of the same token has written first; this write is not applied.
    async fn attempt(
        &self,
        held: &mut Held,
        change: Change<'_>,
        record: Record,
        write_id: &str,
    ) -> Result<Option<ETag>, Error> {
        let Shared { blob, lock_token, .. } = &*self.0;
        let place = blob.place();
        let before = held.unknown_write;
        held.unknown_write = true;
        let write =
            Write { from: Some(&held.state), change, record: &record, write_id, lease: None };
        match write.run(blob).await? {
            Outcome::Written(etag) => {
                let metadata = match change {
                    Change::Content(upload) => upload.metadata.clone(),
                    Change::Record(metadata) => metadata.clone(),
                };
                *held = Held {
                    state: BlobState { etag: etag.clone(), record, metadata },
                    unknown_write: false,
                };
                Ok(Some(etag))
            }
            Outcome::Changed { state, written } => {
                // The version that the write requires can never occur again.
                held.unknown_write = false;
                let state = state.ok_or_else(|| fence_is_gone(place))?;
                state.check(place, lock_token, written)?;
                held.state = state;
                if written == Written::Unknown {
                    let message = "too many concurrent writes with the same token; the write is no longer recorded";
                    return Err(Error::unavailable(place, message, written));
                }
                Ok(None)
            }
            Outcome::Failed(fault) => {
                held.unknown_write = before || fault.is_unclear();
                Err(Error::of(&fault, place, true))
            }
        }
    }

    /// Locks the known version. Ensures first that no earlier write can still be
    /// applied, by replacing the version that such a write requires.
    async fn resolved(&self) -> Result<MutexGuard<'_, Held>, Error> {
        let mut held = self.0.held.lock().await;
        if held.unknown_write {
            let write_id = new_write_id();
            let (record, metadata) =
                (held.state.record.after(&write_id), held.state.metadata.clone());
            self.attempt(&mut held, Change::Record(&metadata), record, &write_id).await?;
        }
        Ok(held)
    }

    async fn read_state(&self) -> Result<BlobState, Error> {
        let place = self.0.blob.place();
        self.0.blob.read_state().await?.ok_or_else(|| fence_is_gone(place))
    }
}

impl fmt::Debug for FencedBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedBlob")
            .field("place", self.0.blob.place())
            .field("lock_token", &self.0.lock_token)
            .finish_non_exhaustive()
    }
}

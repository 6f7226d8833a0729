//! A blob that is written to under a lock.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::Bytes;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    Blob, Conflict, Content, Error, Upload,
    install::fence_is_gone,
    record::{Record, new_number},
    rest::{Change, Expect, Seen},
    write::{Outcome, Write},
};
use crate::{ETag, LockToken, Written, retry::Retries};

/// A blob in which the fence of this holder is up: the storage itself refuses a
/// write once a newer holder's is. Made by [`Blob::fenced`]. Cheap to clone;
/// clones share what they know.
#[derive(Clone)]
pub struct FencedBlob(Arc<Shared>);

struct Shared {
    blob: Blob,
    fence: LockToken,
    /// Who holds the mutex writes.
    held: Mutex<Held>,
}

struct Held {
    /// The version that is known.
    seen: Seen,
    /// Set while a write is under way. If it stays set, because the write was
    /// given up or nobody could say what became of it, then it may still land.
    unknown_write: bool,
}

impl FencedBlob {
    pub(super) fn new(blob: Blob, fence: LockToken, seen: Seen) -> Self {
        let held = Mutex::new(Held { seen, unknown_write: false });
        Self(Arc::new(Shared { blob, fence, held }))
    }

    /// The lock and the token with which it writes.
    #[must_use]
    pub fn lock_token(&self) -> &LockToken {
        &self.0.fence
    }

    /// Reads the blob; none if it is not there. A stale holder is
    /// told so here too.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn read(&self) -> Result<Option<Content>, Error> {
        let Shared { blob, fence, .. } = &*self.0;
        let mut held = self.settled().await?;
        let Some((seen, content)) = blob.fetch().await? else {
            return Err(fence_is_gone(blob.place()));
        };
        seen.check(blob.place(), fence, Written::No)?;
        let gone = seen.record.gone;
        held.seen = seen;
        Ok((!gone).then_some(content))
    }

    /// Writes all of the blob, whatever is there; nothing if a newer holder has
    /// taken over. Writes of this holder go one after the other. If the storage
    /// does not answer, what became of the write is found out, and it is tried
    /// again a few times.
    ///
    /// Dropping the future leaves it open whether it is written; that is settled
    /// before anything else is read or written here.
    ///
    /// # Errors
    /// [`Error::Fenced`]: stop. [`Error::Conflict`]: the blob was not as
    /// expected, or somebody has leased it. [`Error::Unavailable`]: it says
    /// whether it was written. [`Error::Invalid`]: it can't be done as it is; as
    /// far as that is known before, nothing was sent. [`Error::NeedsOperator`]:
    /// as it says.
    pub async fn write(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put(&upload.into(), false, Expect::Anything).await
    }

    /// The same, if the blob has not changed since it had this version.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn replace(&self, upload: impl Into<Upload>, etag: &ETag) -> Result<ETag, Error> {
        self.put(&upload.into(), false, Expect::Version(etag)).await
    }

    /// The same, if the blob is not there.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn create(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        self.put(&upload.into(), false, Expect::Nothing).await
    }

    /// Adds bytes at the end, by reading all of the blob and writing it anew; if
    /// it is not there, it is created. For small blobs: one of the service's
    /// append blobs has no room for the number of a write, by which a lost
    /// answer is made up for.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn append(&self, bytes: impl Into<Bytes>) -> Result<ETag, Error> {
        let bytes = bytes.into();
        let mut others = Retries::for_contention();
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
                }) if others.again(Duration::ZERO).await => {}
                written => return written,
            }
        }
    }

    /// Deletes the blob, but not its fence: an empty blob stays, marked by the
    /// metadata `leaseholdgone`, that counts as none here. Without it, a holder
    /// that was overtaken could create the blob again, because there would be
    /// nothing to compare its token with; and a fence in another blob could not
    /// be compared in one step. Others that read the blob see it empty.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it is not there; else as [`write`](Self::write).
    pub async fn delete(&self) -> Result<(), Error> {
        self.put(&Upload::new(""), true, Expect::Anything).await.map(drop)
    }

    async fn put(&self, upload: &Upload, gone: bool, expect: Expect<'_>) -> Result<ETag, Error> {
        let Shared { blob, fence, .. } = &*self.0;
        let place = blob.place();
        upload.check(place)?;
        let mut others = Retries::for_contention();
        let mut held = self.settled().await?;
        loop {
            let there = !held.seen.record.gone;
            let expected = match expect {
                Expect::Anything => there || !gone,
                Expect::Nothing => !there,
                Expect::Version(etag) => there && held.seen.etag == *etag,
            };
            if !expected {
                // What is known here may be old: others may share the token.
                let seen = self.look().await?;
                if seen.etag == held.seen.etag {
                    return Err(Error::conflict(place, expect.conflict(there)));
                }
                seen.check(place, fence, Written::No)?;
                held.seen = seen;
                if !others.again(Duration::ZERO).await {
                    return Err(Error::conflict(place, Conflict::Changed));
                }
                continue;
            }
            let number = new_number();
            let record = Record { gone, ..held.seen.record.after(&number) };
            match self.attempt(&mut held, Change::Content(upload), record, &number).await? {
                Some(etag) => return Ok(etag),
                // Another with the same token has written.
                None if others.again(Duration::ZERO).await => {}
                None => {
                    let message = "others write all the time with the same token";
                    return Err(Error::unavailable(place, message, Written::No));
                }
            }
        }
    }

    /// One write from the version that is known. None if another with the same
    /// token was there before, and nothing was written.
    async fn attempt(
        &self,
        held: &mut Held,
        change: Change<'_>,
        record: Record,
        number: &str,
    ) -> Result<Option<ETag>, Error> {
        let Shared { blob, fence, .. } = &*self.0;
        let place = blob.place();
        let before = held.unknown_write;
        held.unknown_write = true;
        let write = Write { from: Some(&held.seen), change, record: &record, number, lease: None };
        match write.run(blob).await? {
            Outcome::Written(etag) => {
                let metadata = match change {
                    Change::Content(upload) => upload.metadata.clone(),
                    Change::Record(metadata) => metadata.clone(),
                };
                *held = Held {
                    seen: Seen { etag: etag.clone(), record, metadata },
                    unknown_write: false,
                };
                Ok(Some(etag))
            }
            Outcome::Moved { seen, written } => {
                // It started from a version that will never be there again.
                held.unknown_write = false;
                let seen = seen.ok_or_else(|| fence_is_gone(place))?;
                seen.check(place, fence, written)?;
                held.seen = seen;
                if written == Written::Unknown {
                    let message = "others wrote too much with the same token meanwhile";
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

    /// Sees to it that no write of before can land any more: if the blob still
    /// has the version that it started from, it gets another.
    async fn settled(&self) -> Result<MutexGuard<'_, Held>, Error> {
        let mut held = self.0.held.lock().await;
        if held.unknown_write {
            let number = new_number();
            let (record, metadata) = (held.seen.record.after(&number), held.seen.metadata.clone());
            self.attempt(&mut held, Change::Record(&metadata), record, &number).await?;
        }
        Ok(held)
    }

    async fn look(&self) -> Result<Seen, Error> {
        let place = self.0.blob.place();
        self.0.blob.look().await?.ok_or_else(|| fence_is_gone(place))
    }
}

impl fmt::Debug for FencedBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedBlob")
            .field("place", self.0.blob.place())
            .field("fence", &self.0.fence)
            .finish_non_exhaustive()
    }
}

//! Optimistic updates of a blob without a fence.

use std::time::Duration;

use super::{
    Blob, Content, Error, Upload,
    record::{Record, new_write_id},
    rest::Change,
    write::{Outcome, Write},
};
use crate::{ETag, Written, retry::Retries};

impl Blob {
    /// Reads the blob, passes it to `change`, and writes the result if the blob has
    /// not changed since the read. Otherwise starts over, at most 40 times.
    /// `change` may therefore be called many times. If it returns `None`, nothing
    /// is written. For blobs that several clients change occasionally and that no
    /// lock protects.
    ///
    /// If a response is lost, a write ID in the metadata `leaseholdwrites` shows
    /// whether the write was applied.
    ///
    /// ```no_run
    /// # use leasehold_fence::blob::{Blob, Error};
    /// # async fn example(blob: Blob) -> Result<(), Error> {
    /// blob.update(|content| {
    ///     let content = content?;
    ///     let count: u64 = std::str::from_utf8(&content.bytes).ok()?.parse().ok()?;
    ///     Some(content.with((count + 1).to_string()))
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if the blob is fenced; [`Error::Unavailable`] also if other
    /// clients changed the blob before each attempt; otherwise as
    /// [`overwrite`](Self::overwrite).
    pub async fn update(
        &self,
        mut change: impl FnMut(Option<&Content>) -> Option<Upload>,
    ) -> Result<Option<ETag>, Error> {
        let place = self.place();
        let mut contention = Retries::for_contention();
        loop {
            let read = self.fetch().await?;
            if let Some((state, _)) = &read {
                state.refuse_if_fenced(place)?;
            }
            let Some(upload) = change(read.as_ref().map(|(_, content)| content)) else {
                return Ok(None);
            };
            upload.check(place)?;
            let from = read.as_ref().map(|(state, _)| state);
            let write_id = new_write_id();
            let before = from.map(|state| state.record.clone()).unwrap_or_default();
            let record = Record { gone: false, ..before.after(&write_id) };
            let change = Change::Content(&upload);
            let write = Write { from, change, record: &record, write_id: &write_id, lease: None };
            match write.run(self).await? {
                Outcome::Written(etag) => return Ok(Some(etag)),
                Outcome::Changed { written: Written::Unknown, .. } => {
                    let message = "too many concurrent writes; the write is no longer recorded";
                    return Err(Error::unavailable(place, message, Written::Unknown));
                }
                Outcome::Changed { .. } if contention.next_attempt(Duration::ZERO).await => {}
                Outcome::Changed { .. } => {
                    let message = "too many concurrent changes of the blob";
                    return Err(Error::unavailable(place, message, Written::No));
                }
                Outcome::Failed(fault) => return Err(Error::of(&fault, place, true)),
            }
        }
    }
}

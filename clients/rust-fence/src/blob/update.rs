//! Changing a blob that nothing fences: optimistically, by its version.

use std::time::Duration;

use super::{
    Blob, Content, Error, Upload,
    record::{Record, new_number},
    rest::Change,
    write::{Outcome, Write},
};
use crate::{ETag, Written, retry::Retries};

impl Blob {
    /// Reads the blob, lets `change` say what it should be, and writes that if
    /// the blob has not changed meanwhile; else all of it again, some 40 times
    /// at most. `change` may be called many times, and ends it by answering
    /// none. For blobs that many change now and then, and no lock protects.
    ///
    /// If an answer is lost, what became of the write is found out by a number
    /// in the blob's metadata (`leaseholdwrites`).
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
    /// [`Error::Invalid`] if a lock fences the blob after all; else as
    /// [`overwrite`](Self::overwrite). [`Error::Unavailable`] also if others
    /// changed it each time.
    pub async fn update(
        &self,
        mut change: impl FnMut(Option<&Content>) -> Option<Upload>,
    ) -> Result<Option<ETag>, Error> {
        let place = self.place();
        let mut others = Retries::for_contention();
        loop {
            let read = self.fetch().await?;
            if let Some((seen, _)) = &read {
                seen.refuse_if_guarded(place)?;
            }
            let Some(upload) = change(read.as_ref().map(|(_, content)| content)) else {
                return Ok(None);
            };
            upload.check(place)?;
            let from = read.as_ref().map(|(seen, _)| seen);
            let number = new_number();
            let before = from.map(|seen| seen.record.clone()).unwrap_or_default();
            let record = Record { gone: false, ..before.after(&number) };
            let change = Change::Content(&upload);
            let write = Write { from, change, record: &record, number: &number, lease: None };
            match write.run(self).await? {
                Outcome::Written(etag) => return Ok(Some(etag)),
                Outcome::Moved { written: Written::Unknown, .. } => {
                    let message = "others wrote too much meanwhile";
                    return Err(Error::unavailable(place, message, Written::Unknown));
                }
                Outcome::Moved { .. } if others.again(Duration::ZERO).await => {}
                Outcome::Moved { .. } => {
                    let message = "others change the blob all the time";
                    return Err(Error::unavailable(place, message, Written::No));
                }
                Outcome::Failed(fault) => return Err(Error::of(&fault, place, true)),
            }
        }
    }
}

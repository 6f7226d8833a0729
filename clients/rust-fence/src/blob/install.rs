//! Putting up the fence of a new holder: the blob's version changes with it, so
//! that no write of an earlier holder fits any more.

use std::{collections::BTreeMap, time::Duration};

use leasehold_client::Token;

use super::{
    Blob, Error, Place, Upload,
    record::{Record, new_number},
    rest::{Change, Seen},
    write::{Outcome, Write},
};
use crate::{LockToken, Written, retry::Retries};

pub(super) async fn install(blob: &Blob, fence: &LockToken) -> Result<Seen, Error> {
    let (place, token) = (blob.place(), fence.token().get());
    if token == 0 || i64::try_from(token).is_err() {
        let message = "that is no token of a lock; pass on the one that was granted";
        return Err(Error::invalid(place, message));
    }
    let own = Some((token, Record::lock_of(fence)));
    let nothing = Upload::new("");
    let mut others = Retries::for_contention();
    loop {
        let from = blob.look().await?;
        if let Some(seen) = &from
            && seen.record.fence.is_some()
        {
            seen.check(place, fence, Written::No)?;
            if seen.record.fence == own {
                return Ok(seen.clone());
            }
        }
        let number = new_number();
        // A blob that is not there can't have a version: an empty one is put
        // there that counts as none.
        let (record, change, metadata) = match &from {
            Some(seen) => {
                (seen.record.after(&number), Change::Record(&seen.metadata), seen.metadata.clone())
            }
            None => {
                let record = Record { gone: true, ..Record::default() };
                (record.after(&number), Change::Content(&nothing), BTreeMap::new())
            }
        };
        let record = Record { fence: own.clone(), ..record };
        let (from, number) = (from.as_ref(), number.as_str());
        let write = Write { from, change, record: &record, number, lease: None };
        match write.run(blob).await? {
            Outcome::Written(etag) => return Ok(Seen { etag, record, metadata }),
            Outcome::Moved { .. } if others.again(Duration::ZERO).await => {}
            Outcome::Moved { .. } => {
                let message = "others change the blob all the time";
                return Err(Error::unavailable(place, message, Written::No));
            }
            // Nothing of the user's was to be changed.
            Outcome::Failed(fault) => return Err(Error::of(&fault, place, false)),
        }
    }
}

impl Seen {
    /// Whether this holder may still touch it. The blob has been fenced before.
    pub(super) fn check(
        &self,
        place: &Place,
        fence: &LockToken,
        written: Written,
    ) -> Result<(), Error> {
        let Some((token, lock)) = &self.record.fence else { return Err(fence_is_gone(place)) };
        let own = Record::lock_of(fence);
        if *lock != own {
            let message = format!(
                "the blob is guarded by the lock {lock:?}, not by {own:?}, and tokens of different \
                 locks can't be compared. Use that lock; or, to change over, remove the metadata \
                 that begins with \"leasehold\" while nobody holds either"
            );
            return Err(Error::invalid(place, message));
        }
        if *token > fence.token().get() {
            let place = Box::new(place.clone());
            return Err(Error::Fenced { place, newer: Some(Token::new(*token)), written });
        }
        Ok(())
    }
}

/// Somebody has written past the guard. The holder of now must not put up its
/// fence again: perhaps a newer one had.
pub(super) fn fence_is_gone(place: &Place) -> Error {
    let message = "the fence is gone: somebody has replaced or deleted the blob past the guard. \
                   Nothing is written with this token any more; find out who did it, and let all \
                   programs write through the guard. The next holder of the lock can go on";
    Error::needs_operator(place, message)
}

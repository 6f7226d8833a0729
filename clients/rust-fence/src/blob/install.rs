//! Installation of a new holder's fence. It changes the version of the blob, so
//! that the conditions of earlier holders' writes fail.

use std::{collections::BTreeMap, time::Duration};

use leasehold_client::Token;

use super::{
    Blob, Error, Place, Upload,
    record::{Record, new_write_id},
    rest::{BlobState, Change},
    write::{Outcome, Write},
};
use crate::{LockToken, Written, retry::Retries};

pub(super) async fn install(blob: &Blob, lock_token: &LockToken) -> Result<BlobState, Error> {
    let (place, token) = (blob.place(), lock_token.token().get());
    if token == 0 || i64::try_from(token).is_err() {
        let message = "not a token of a lock; use the token of the grant";
        return Err(Error::invalid(place, message));
    }
    let own = Some((token, Record::lock_of(lock_token)));
    let nothing = Upload::new("");
    let mut contention = Retries::for_contention();
    loop {
        let from = blob.read_state().await?;
        if let Some(state) = &from
            && state.record.fence.is_some()
        {
            state.check(place, lock_token, Written::No)?;
            if state.record.fence == own {
                return Ok(state.clone());
            }
        }
        let write_id = new_write_id();
        // A missing blob has no version. An empty blob marked as deleted takes its
        // place.
        let (record, change, metadata) = match &from {
            Some(state) => (
                state.record.after(&write_id),
                Change::Record(&state.metadata),
                state.metadata.clone(),
            ),
            None => {
                let record = Record { gone: true, ..Record::default() };
                (record.after(&write_id), Change::Content(&nothing), BTreeMap::new())
            }
        };
        let record = Record { fence: own.clone(), ..record };
        let (from, write_id) = (from.as_ref(), write_id.as_str());
        let write = Write { from, change, record: &record, write_id, lease: None };
        match write.run(blob).await? {
            Outcome::Written(etag) => return Ok(BlobState { etag, record, metadata }),
            Outcome::Changed { .. } if contention.next_attempt(Duration::ZERO).await => {}
            Outcome::Changed { .. } => {
                let message = "too many concurrent changes of the blob";
                return Err(Error::unavailable(place, message, Written::No));
            }
            // The call does not change the caller's content.
            Outcome::Failed(fault) => return Err(Error::of(&fault, place, false)),
        }
    }
}

impl BlobState {
    /// Checks that this holder is still the newest one. The blob must have a fence.
    pub(super) fn check(
        &self,
        place: &Place,
        lock_token: &LockToken,
        written: Written,
    ) -> Result<(), Error> {
        let Some((token, lock)) = &self.record.fence else { return Err(fence_is_gone(place)) };
        let own = Record::lock_of(lock_token);
        if *lock != own {
            let message = format!(
                "the blob is fenced by lock {lock:?}, not by {own:?}; tokens of different locks \
                 can't be compared. Use that lock. To change the lock, remove the metadata that \
                 begins with \"leasehold\" while no client holds either lock"
            );
            return Err(Error::invalid(place, message));
        }
        if *token > lock_token.token().get() {
            let place = Box::new(place.clone());
            return Err(Error::Fenced { place, newer: Some(Token::new(*token)), written });
        }
        Ok(())
    }
}

/// Error for a blob whose fence was removed by a write that bypassed it. The
/// current holder must not reinstall its fence, because a newer holder may have
/// had one.
pub(super) fn fence_is_gone(place: &Place) -> Error {
    let message = "the fence is gone: another program has replaced or deleted the blob without it. \
                   This token can't write anymore; the next holder of the lock can. Find that \
                   program, and route all writes through the fenced API";
    Error::needs_operator(place, message)
}

//! Writes of a fenced partition, and resolution of unknown outcomes.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use super::{
    Conflict, ETag, Error, Place, Receipt, Table, Transaction, Written,
    batch::Failed,
    deadline::Deadline,
    fault::{is_contended, is_missing_row},
    fence::{FenceRow, new_write_id},
    install::missing_fence_error,
    transaction::Change,
};
use crate::retry::Retries;

/// Partition with a holder's fence.
pub(super) struct Partition {
    pub(super) table: Table,
    /// Contains the partition and the token.
    pub(super) place: Place,
    pub(super) token: u64,
    held: Mutex<Held>,
}

/// Last known state of this holder's fence. Locked during a write, so that the writes
/// are sequential.
struct Held {
    fence: FenceRow,
    /// IDs of own writes from that version that were canceled or have an unknown
    /// outcome. The storage may still apply one of them.
    unknown_writes: Vec<String>,
    /// Set if another user of the same token has written and no call has reported the
    /// conflict yet.
    conflict_pending: bool,
}

/// Resolved outcome of a write whose response was lost.
enum Resolved {
    Written,
    /// Not written, and never will be.
    NotWritten,
}

/// Result of a batch: the new versions of the rows, the fence row first.
type BatchResult = Result<Vec<Option<ETag>>, Failed>;

impl Held {
    /// Maximum number of IDs. If one is dropped, an own write is taken for a write of
    /// another user, which is safe.
    const MAX_UNKNOWN_WRITES: usize = 64;

    /// Adds the ID of a write before it is sent.
    fn add_unknown_write(&mut self, write_id: &str) {
        if self.unknown_writes.len() >= Self::MAX_UNKNOWN_WRITES {
            self.unknown_writes.remove(0);
        }
        self.unknown_writes.push(write_id.to_owned());
    }

    /// Stores a version of the fence that no earlier write of this handle can follow.
    fn set_resolved(&mut self, fence: FenceRow) {
        self.conflict_pending |= !fence.only_advanced_by(&self.unknown_writes, &self.fence);
        self.fence = fence;
        self.unknown_writes.clear();
    }
}

impl Partition {
    pub(super) fn new(table: Table, place: Place, token: u64, fence: FenceRow) -> Self {
        let held = Held { fence, unknown_writes: Vec::new(), conflict_pending: false };
        Self { table, place, token, held: Mutex::new(held) }
    }

    pub(super) async fn commit(&self, transaction: &Transaction) -> Result<Receipt, Error> {
        transaction.check(&self.place)?;
        let by = self.table.deadline();
        let mut held = self.resolved(by).await?;
        let mut service = Retries::for_service();
        loop {
            if std::mem::take(&mut held.conflict_pending) {
                return Err(self.same_token_error());
            }
            let write_id = new_write_id();
            let failed = match self.write(&mut held, &write_id, &transaction.changes, by).await? {
                Ok(etags) => return Ok(Receipt::new(&transaction.changes, etags)),
                Err(failed) => failed,
            };
            let retry = match &failed.fault {
                fault if fault.is_unclear() => {
                    match self.resolve_outcome(&mut held, Some(&write_id), by).await? {
                        Resolved::Written => return Ok(Receipt::default()),
                        Resolved::NotWritten if held.conflict_pending => true,
                        Resolved::NotWritten
                            if by.next_attempt(&mut service, fault.retry_after()).await =>
                        {
                            true
                        }
                        Resolved::NotWritten => return Err(Error::of(fault, &self.place, false)),
                    }
                }
                fault if is_contended(fault) && failed.index == Some(0) => {
                    return self.on_fence_changed(&mut held, &write_id, by).await;
                }
                fault => fault.may_pass() && by.next_attempt(&mut service, Duration::ZERO).await,
            };
            if !retry {
                return Err(self.refusal(&failed, &transaction.changes));
            }
        }
    }

    pub(super) fn key(&self) -> &str {
        self.place.partition.as_deref().unwrap_or_default()
    }

    /// Makes one attempt: advances the fence and makes the changes. The ID remains in
    /// `unknown_writes` only if the outcome is unknown.
    async fn write(
        &self,
        held: &mut Held,
        write_id: &str,
        changes: &[Change],
        by: Deadline,
    ) -> Result<BatchResult, Error> {
        held.add_unknown_write(write_id);
        let result = self.send(&held.fence, write_id, changes, by).await;
        if !matches!(&result, Ok(Err(failed)) if failed.fault.is_unclear()) {
            held.unknown_writes.retain(|unknown| unknown != write_id);
        }
        Ok(match result? {
            Ok(mut etags) => {
                match etags.remove(0) {
                    Some(etag) => held.fence.advanced(etag, write_id),
                    // The response has no ETag. The next call reads the new version.
                    None => held.add_unknown_write(write_id),
                }
                Ok(etags)
            }
            Err(failed) => Err(failed),
        })
    }

    /// Sends the changes together with the advance of the fence row.
    async fn send(
        &self,
        from: &FenceRow,
        write_id: &str,
        changes: &[Change],
        by: Deadline,
    ) -> Result<BatchResult, Error> {
        let mut all = vec![from.advance(self.token, write_id)];
        all.extend_from_slice(changes);
        match self.table.batch(&self.place, &all, by).await? {
            Err(failed) if failed.index == Some(0) && is_missing_row(&failed.fault) => {
                Err(missing_fence_error(&self.table, &self.place, self.token, Written::No, by)
                    .await)
            }
            result => Ok(result),
        }
    }

    /// Ensures that no earlier write can still be applied. Required before a read.
    pub(super) async fn resolve_pending(&self, by: Deadline) -> Result<(), Error> {
        let resolved = self.resolved(by).await;
        resolved.map(drop).map_err(|error| error.with_token(self.token))
    }

    /// Locks the state. Ensures first that no earlier write can still be applied.
    async fn resolved(&self, by: Deadline) -> Result<MutexGuard<'_, Held>, Error> {
        let Some(mut held) = by.bound(self.held.lock()).await else {
            let message = format!(
                "earlier writes of this handle were still pending after {:?}",
                by.timeout()
            );
            return Err(self.unavailable(message));
        };
        if !held.unknown_writes.is_empty() {
            let resolved = self.resolve_outcome(&mut held, None, by).await;
            resolved.map_err(|error| self.not_sent(error))?;
        }
        Ok(held)
    }

    /// Determines the outcome of a write, and advances the fence, so that the write
    /// can't be applied later. Until that succeeds, the outcome is unknown.
    async fn resolve_outcome(
        &self,
        held: &mut Held,
        write_id: Option<&str>,
        by: Deadline,
    ) -> Result<Resolved, Error> {
        let (mut contention, mut service) = (Retries::for_contention(), Retries::for_service());
        loop {
            let row = FenceRow::read(&self.table, &self.place, self.token, by).await;
            let Some(mut row) = row.map_err(|error| self.unknown(error))? else {
                return Err(self.fenced_with_unknown_outcome(by).await);
            };
            if write_id.is_some_and(|write_id| row.has(write_id)) {
                held.set_resolved(row);
                return Ok(Resolved::Written);
            }
            let covered = row.covers(&held.fence);
            let advance_id = new_write_id();
            held.add_unknown_write(&advance_id);
            let failed = match self.send(&row, &advance_id, &[], by).await {
                Ok(Ok(mut etags)) => {
                    let Some(etag) = etags.pop().flatten() else { continue };
                    row.advanced(etag, &advance_id);
                    held.set_resolved(row);
                    if covered || write_id.is_none() {
                        return Ok(Resolved::NotWritten);
                    }
                    return Err(self.not_recorded_error());
                }
                Ok(Err(failed)) => failed,
                Err(error) => return Err(self.unknown(error)),
            };
            let retry = match &failed.fault {
                fault if is_contended(fault) => {
                    by.next_attempt(&mut contention, Duration::ZERO).await
                }
                fault => {
                    fault.may_pass() && by.next_attempt(&mut service, fault.retry_after()).await
                }
            };
            if !retry {
                return Err(self.unknown(self.refusal(&failed, &[])));
            }
        }
    }

    /// Handles a fence that no longer has the known version. This write can't be applied
    /// later. But if the request was duplicated in transit and this is the response to
    /// the second copy, the first one was applied.
    async fn on_fence_changed(
        &self,
        held: &mut Held,
        write_id: &str,
        by: Deadline,
    ) -> Result<Receipt, Error> {
        held.add_unknown_write(write_id);
        let row = FenceRow::read(&self.table, &self.place, self.token, by).await;
        let Some(row) = row.map_err(|error| self.unknown(error))? else {
            return Err(self.fenced_with_unknown_outcome(by).await);
        };
        let (written, covered) = (row.has(write_id), row.covers(&held.fence));
        held.set_resolved(row);
        if written {
            return Ok(Receipt::default());
        }
        // This error reports the conflict.
        held.conflict_pending = false;
        Err(if covered { self.same_token_error() } else { self.not_recorded_error() })
    }

    /// Converts the refusal of a write, whose first change is the fence.
    fn refusal(&self, failed: &Failed, changes: &[Change]) -> Error {
        match (failed.index, &failed.fault) {
            (Some(0), fault) if is_contended(fault) => {
                self.unavailable("too many concurrent writes with the same token".to_owned())
            }
            (index, fault) => {
                let index = index.and_then(|index| index.checked_sub(1));
                Failed { index, fault: fault.clone() }.error(&self.place, changes)
            }
        }
    }

    fn unavailable(&self, message: String) -> Error {
        let (place, retry_after) = (Box::new(self.place.clone()), Duration::ZERO);
        Error::Unavailable { place, message, written: Written::No, retry_after }
    }

    fn same_token_error(&self) -> Error {
        Error::Conflict { place: Box::new(self.place.clone()), conflict: Conflict::SameToken }
    }

    fn not_recorded_error(&self) -> Error {
        let message =
            "too many concurrent writes with the same token; the write is no longer recorded";
        self.unknown(self.unavailable(message.to_owned()))
    }

    async fn fenced_with_unknown_outcome(&self, by: Deadline) -> Error {
        let (table, place) = (&self.table, &self.place);
        self.unknown(missing_fence_error(table, place, self.token, Written::Unknown, by).await)
    }

    /// Converts an error of an earlier write's resolution into that of a call that was
    /// waiting for it and was not sent.
    fn not_sent(&self, error: Error) -> Error {
        match error {
            Error::Unavailable { place, message, retry_after, .. } => {
                let message = format!(
                    "not sent, because the outcome of an earlier write is unknown: {message}"
                );
                Error::Unavailable { place, message, written: Written::No, retry_after }
            }
            Error::Fenced { place, newer, .. } => {
                Error::Fenced { place, newer, written: Written::No }
            }
            other => other,
        }
    }

    /// Converts an error into that of a write with an unknown outcome.
    fn unknown(&self, error: Error) -> Error {
        match error {
            Error::Unavailable { message, retry_after, .. } => Error::Unavailable {
                place: Box::new(self.place.clone()),
                message,
                written: Written::Unknown,
                retry_after,
            },
            Error::Fenced { place, newer, .. } => {
                Error::Fenced { place, newer, written: Written::Unknown }
            }
            Error::Invalid { place, message } => {
                let (written, retry_after) = (Written::Unknown, Duration::ZERO);
                Error::Unavailable { place, message, written, retry_after }
            }
            other => other,
        }
    }
}

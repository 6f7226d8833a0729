//! Writing behind a fence, and finding out what became of a write.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use super::{
    Conflict, ETag, Error, Place, Receipt, Table, Transaction, Written,
    batch::Failed,
    deadline::Deadline,
    fault::{is_contended, is_missing_row},
    fence::{FenceRow, new_number},
    install::fenced,
    transaction::Change,
};
use crate::retry::Retries;

/// A partition in which a holder's fence is up.
pub(super) struct Partition {
    pub(super) table: Table,
    /// With the partition and the token.
    pub(super) place: Place,
    pub(super) token: u64,
    held: Mutex<Held>,
}

/// What is known of the own fence. Who holds the mutex writes.
struct Held {
    fence: FenceRow,
    /// The numbers of own writes since that fence was seen of which it is not
    /// known what became, because they were given up or nobody could say. While
    /// there are any, one may still land.
    unknown_writes: Vec<String>,
    /// Another user of the same token has written, and the user was not told.
    overlooked: bool,
}

/// What became of a write whose answer was lost.
enum Found {
    Written,
    /// And it never will be.
    NotWritten,
}

/// What a batch made of the rows: the fence first.
type Answer = Result<Vec<Option<ETag>>, Failed>;

impl Held {
    /// So many numbers are kept. Who forgets more takes an own write for
    /// another's, which is safe.
    const MAX_UNKNOWN_WRITES: usize = 64;

    fn sends(&mut self, number: &str) {
        if self.unknown_writes.len() >= Self::MAX_UNKNOWN_WRITES {
            self.unknown_writes.remove(0);
        }
        self.unknown_writes.push(number.to_owned());
    }

    /// The fence is seen anew, in a version past which no earlier write of
    /// this handle can land.
    fn settle(&mut self, fence: FenceRow) {
        self.overlooked |= !fence.only_moved_by(&self.unknown_writes, &self.fence);
        self.fence = fence;
        self.unknown_writes.clear();
    }
}

impl Partition {
    pub(super) fn new(table: Table, place: Place, token: u64, fence: FenceRow) -> Self {
        let held = Held { fence, unknown_writes: Vec::new(), overlooked: false };
        Self { table, place, token, held: Mutex::new(held) }
    }

    pub(super) async fn commit(&self, transaction: &Transaction) -> Result<Receipt, Error> {
        transaction.check(&self.place)?;
        let by = self.table.deadline();
        let mut held = self.settled(by).await?;
        let mut service = Retries::for_service();
        loop {
            if std::mem::take(&mut held.overlooked) {
                return Err(self.same_token());
            }
            let number = new_number();
            let failed = match self.write(&mut held, &number, &transaction.changes, by).await? {
                Ok(etags) => return Ok(Receipt::new(&transaction.changes, etags)),
                Err(failed) => failed,
            };
            let again = match &failed.fault {
                fault if fault.is_unclear() => {
                    match self.find_out(&mut held, Some(&number), by).await? {
                        Found::Written => return Ok(Receipt::default()),
                        Found::NotWritten if held.overlooked => true,
                        Found::NotWritten if by.again(&mut service, fault.retry_after()).await => {
                            true
                        }
                        Found::NotWritten => return Err(Error::of(fault, &self.place, false)),
                    }
                }
                fault if is_contended(fault) && failed.index == Some(0) => {
                    return self.passed_by(&mut held, &number, by).await;
                }
                fault => fault.may_pass() && by.again(&mut service, Duration::ZERO).await,
            };
            if !again {
                return Err(self.refused(&failed, &transaction.changes));
            }
        }
    }

    pub(super) fn key(&self) -> &str {
        self.place.partition.as_deref().unwrap_or_default()
    }

    /// One attempt: moves the fence on, and makes the changes. The number stays
    /// among the unknown_writes only if it may still land.
    async fn write(
        &self,
        held: &mut Held,
        number: &str,
        changes: &[Change],
        by: Deadline,
    ) -> Result<Answer, Error> {
        held.sends(number);
        let answer = self.send(&held.fence, number, changes, by).await;
        if !matches!(&answer, Ok(Err(failed)) if failed.fault.is_unclear()) {
            held.unknown_writes.retain(|unknown_writes| unknown_writes != number);
        }
        Ok(match answer? {
            Ok(mut etags) => {
                match etags.remove(0) {
                    Some(etag) => held.fence.moved_on(etag, number),
                    // Its version is read before it is needed again.
                    None => held.sends(number),
                }
                Ok(etags)
            }
            Err(failed) => Err(failed),
        })
    }

    async fn send(
        &self,
        from: &FenceRow,
        number: &str,
        changes: &[Change],
        by: Deadline,
    ) -> Result<Answer, Error> {
        let mut all = vec![from.move_on(self.token, number)];
        all.extend_from_slice(changes);
        match self.table.batch(&self.place, &all, by).await? {
            Err(failed) if failed.index == Some(0) && is_missing_row(&failed.fault) => {
                Err(fenced(&self.table, &self.place, self.token, Written::No, by).await)
            }
            answer => Ok(answer),
        }
    }

    /// Before anything is read: no write of before may land any more.
    pub(super) async fn settle(&self, by: Deadline) -> Result<(), Error> {
        let settled = self.settled(by).await;
        settled.map(drop).map_err(|error| error.with_token(self.token))
    }

    /// What is held, when no write of before may land any more.
    async fn settled(&self, by: Deadline) -> Result<MutexGuard<'_, Held>, Error> {
        let Some(mut held) = by.bound(self.held.lock()).await else {
            let message = format!(
                "other writes through this guard were still under way after {:?}",
                by.limit()
            );
            return Err(self.unavailable(message));
        };
        if !held.unknown_writes.is_empty() {
            let found = self.find_out(&mut held, None, by).await;
            found.map_err(|error| self.not_sent(error))?;
        }
        Ok(held)
    }

    /// Finds out what became of a write, and moves the fence on past it so that
    /// it can't land later. As long as that fails, it is not known.
    async fn find_out(
        &self,
        held: &mut Held,
        number: Option<&str>,
        by: Deadline,
    ) -> Result<Found, Error> {
        let (mut others, mut service) = (Retries::for_contention(), Retries::for_service());
        loop {
            let row = FenceRow::read(&self.table, &self.place, self.token, by).await;
            let Some(mut row) = row.map_err(|error| self.unknown(error))? else {
                return Err(self.unknown_and_fenced(by).await);
            };
            if number.is_some_and(|number| row.has(number)) {
                held.settle(row);
                return Ok(Found::Written);
            }
            let covered = row.covers(&held.fence);
            let past = new_number();
            held.sends(&past);
            let failed = match self.send(&row, &past, &[], by).await {
                Ok(Ok(mut etags)) => {
                    let Some(etag) = etags.pop().flatten() else { continue };
                    row.moved_on(etag, &past);
                    held.settle(row);
                    if covered || number.is_none() {
                        return Ok(Found::NotWritten);
                    }
                    return Err(self.forgotten());
                }
                Ok(Err(failed)) => failed,
                Err(error) => return Err(self.unknown(error)),
            };
            let again = match &failed.fault {
                fault if is_contended(fault) => by.again(&mut others, Duration::ZERO).await,
                fault => fault.may_pass() && by.again(&mut service, fault.retry_after()).await,
            };
            if !again {
                return Err(self.unknown(self.refused(&failed, &[])));
            }
        }
    }

    /// What it means that the fence was not as it was last seen. This write
    /// can't land any more; but if the call was repeated on its way, and that
    /// is the answer to the second, then the first was done.
    async fn passed_by(
        &self,
        held: &mut Held,
        number: &str,
        by: Deadline,
    ) -> Result<Receipt, Error> {
        held.sends(number);
        let row = FenceRow::read(&self.table, &self.place, self.token, by).await;
        let Some(row) = row.map_err(|error| self.unknown(error))? else {
            return Err(self.unknown_and_fenced(by).await);
        };
        let (written, covered) = (row.has(number), row.covers(&held.fence));
        held.settle(row);
        if written {
            return Ok(Receipt::default());
        }
        // Told now, in one way or the other.
        held.overlooked = false;
        Err(if covered { self.same_token() } else { self.forgotten() })
    }

    /// What it means that a write was refused. The fence is its first change.
    fn refused(&self, failed: &Failed, changes: &[Change]) -> Error {
        match (failed.index, &failed.fault) {
            (Some(0), fault) if is_contended(fault) => {
                self.unavailable("others write all the time with the same token".to_owned())
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

    fn same_token(&self) -> Error {
        Error::Conflict { place: Box::new(self.place.clone()), conflict: Conflict::SameToken }
    }

    fn forgotten(&self) -> Error {
        let message = "others wrote too much with the same token meanwhile".to_owned();
        self.unknown(self.unavailable(message))
    }

    async fn unknown_and_fenced(&self, by: Deadline) -> Error {
        self.unknown(fenced(&self.table, &self.place, self.token, Written::Unknown, by).await)
    }

    /// The same error, but of what had to wait for an earlier write: that one
    /// is unclear still, this was not begun.
    fn not_sent(&self, error: Error) -> Error {
        match error {
            Error::Unavailable { place, message, retry_after, .. } => {
                let message = format!(
                    "an earlier write is not settled, and nothing is sent before it is: {message}"
                );
                Error::Unavailable { place, message, written: Written::No, retry_after }
            }
            Error::Fenced { place, newer, .. } => {
                Error::Fenced { place, newer, written: Written::No }
            }
            other => other,
        }
    }

    /// The same error, but of a write that may have been done.
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

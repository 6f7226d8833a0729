//! Writing behind a fence, and finding out what became of a write.

use std::time::Duration;

use tokio::sync::Mutex;

use super::{
    ETag, Error, Place, Receipt, Table, Transaction, Written,
    batch::Failed,
    fault::{is_contended, is_missing_row},
    fence::{FenceRow, new_number},
    install::fenced,
    transaction::Change,
};
use crate::guard_azure::patience::Patience;

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
    /// Set while a write is under way. If it stays set, because the write was
    /// given up or nobody could say what became of it, then it may still land.
    unsure: bool,
}

/// What became of a write whose answer was lost.
enum Found {
    Written,
    /// And it never will be.
    NotWritten,
}

impl Partition {
    pub(super) fn new(table: Table, place: Place, token: u64, fence: FenceRow) -> Self {
        Self { table, place, token, held: Mutex::new(Held { fence, unsure: false }) }
    }

    pub(super) async fn commit(&self, transaction: &Transaction) -> Result<Receipt, Error> {
        transaction.check(&self.place)?;
        let mut held = self.held.lock().await;
        if held.unsure {
            self.find_out(&mut held, None).await?;
        }
        let (mut others, mut service) = (Patience::with_others(), Patience::with_service());
        loop {
            let number = new_number();
            let failed = match self.write(&mut held, &number, &transaction.changes).await? {
                Ok(etags) => return Ok(Receipt::new(&transaction.changes, etags)),
                Err(failed) => failed,
            };
            let again = match &failed.fault {
                fault if fault.is_unclear() => {
                    match self.find_out(&mut held, Some(&number)).await? {
                        Found::Written => return Ok(Receipt::default()),
                        Found::NotWritten if service.again(fault.retry_after()).await => true,
                        Found::NotWritten => return Err(Error::of(fault, &self.place, false)),
                    }
                }
                // Another with the same token has written: nothing was done.
                fault if is_contended(fault) && failed.index == Some(0) => {
                    held.fence = self.read().await?;
                    others.again(Duration::ZERO).await
                }
                fault => fault.may_pass() && service.again(Duration::ZERO).await,
            };
            if !again {
                return Err(self.refused(&failed, &transaction.changes));
            }
        }
    }

    pub(super) fn key(&self) -> &str {
        self.place.partition.as_deref().unwrap_or_default()
    }

    /// One attempt: moves the fence on, and makes the changes. The outer error
    /// ends it; `unsure` stays set only if it may still land.
    async fn write(
        &self,
        held: &mut Held,
        number: &str,
        changes: &[Change],
    ) -> Result<Result<Vec<Option<ETag>>, Failed>, Error> {
        let mut all = vec![held.fence.move_on(self.token, number)];
        all.extend_from_slice(changes);
        held.unsure = true;
        let answer = self.table.batch(&self.place, &all).await;
        held.unsure = matches!(&answer, Ok(Err(failed)) if failed.fault.is_unclear());
        match answer? {
            Ok(mut etags) => {
                match etags.remove(0) {
                    Some(etag) => held.fence.moved_on(etag, number),
                    // Its version is read before it is needed again.
                    None => held.unsure = true,
                }
                Ok(Ok(etags))
            }
            Err(failed) if failed.index == Some(0) && is_missing_row(&failed.fault) => {
                Err(fenced(&self.table, &self.place, Written::No).await)
            }
            Err(failed) => Ok(Err(failed)),
        }
    }

    /// Before anything is read: no write of before may land any more.
    pub(super) async fn settle(&self) -> Result<(), Error> {
        let mut held = self.held.lock().await;
        if held.unsure {
            let found = self.find_out(&mut held, None).await;
            found.map_err(|error| error.with_token(self.token))?;
        }
        Ok(())
    }

    /// Finds out what became of a write, and moves the fence on past it so that
    /// it can't land later. As long as that fails, it is not known.
    async fn find_out(&self, held: &mut Held, number: Option<&str>) -> Result<Found, Error> {
        let (mut others, mut service) = (Patience::with_others(), Patience::with_service());
        loop {
            let row = FenceRow::read(&self.table, &self.place, self.token).await;
            let Some(row) = row.map_err(|error| self.unknown(error))? else {
                return Err(fenced(&self.table, &self.place, Written::Unknown).await);
            };
            if number.is_some_and(|number| row.has(number)) {
                *held = Held { fence: row, unsure: false };
                return Ok(Found::Written);
            }
            let covered = row.covers(&held.fence);
            let mut past = Held { fence: row, unsure: true };
            let failed = match self.write(&mut past, &new_number(), &[]).await {
                Ok(Ok(_)) => {
                    *held = past;
                    if covered || number.is_none() {
                        return Ok(Found::NotWritten);
                    }
                    let message = "others wrote too much with the same token meanwhile".to_owned();
                    return Err(self.unknown(self.unavailable(message)));
                }
                Ok(Err(failed)) => failed,
                Err(error) => return Err(self.unknown(error)),
            };
            let again = match &failed.fault {
                fault if is_contended(fault) => others.again(Duration::ZERO).await,
                fault => fault.may_pass() && service.again(fault.retry_after()).await,
            };
            if !again {
                return Err(self.unknown(self.refused(&failed, &[])));
            }
        }
    }

    /// The fence as it is, before it is moved on.
    async fn read(&self) -> Result<FenceRow, Error> {
        match FenceRow::read(&self.table, &self.place, self.token).await? {
            Some(row) => Ok(row),
            None => Err(fenced(&self.table, &self.place, Written::No).await),
        }
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

//! A table that is written to under a lock.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::{
    ETag, Entity, Error, Place, Query, Receipt, Table, Transaction, Written,
    batch::Failed,
    fence::{FenceRow, new_number},
    install::{fenced, install},
    patience::Patience,
    place::check_row,
    transaction::{Change, check_partition},
};
use crate::{Fence, azure::Fault};

/// A table that is written to with a token: the storage itself refuses a write
/// once a newer holder has touched the same partition. Made by
/// [`Table::guarded`]. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct GuardedTable(Arc<Shared>);

struct Shared {
    table: Table,
    fence: Fence,
    /// Where the fence is up.
    partitions: std::sync::Mutex<HashMap<String, GuardedPartition>>,
}

/// A partition in which the fence of this holder is up. Cheap to clone.
#[derive(Clone)]
pub struct GuardedPartition(Arc<State>);

struct State {
    table: Table,
    /// With the partition and the token.
    place: Place,
    token: u64,
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

impl GuardedTable {
    pub(super) fn new(table: Table, fence: Fence) -> Self {
        let partitions = std::sync::Mutex::default();
        Self(Arc::new(Shared { table, fence, partitions }))
    }

    /// The lock and the token with which it writes.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.0.fence
    }

    /// Puts up this holder's fence in a partition: from then on no earlier
    /// holder can write to it. Costs two calls the first time, none after that.
    ///
    /// # Errors
    /// [`Error::Fenced`] if a newer holder was there already; else as
    /// [`GuardedPartition::commit`].
    pub async fn partition(&self, partition: &str) -> Result<GuardedPartition, Error> {
        if let Some(known) = self.partitions().get(partition) {
            return Ok(known.clone());
        }
        let Shared { table, fence, .. } = &*self.0;
        let token = fence.token();
        let place = table.place().partition(partition).token(token);
        check_partition(&place)?;
        let held = Held { fence: install(table, &place, fence).await?, unsure: false };
        let (table, held) = (table.clone(), Mutex::new(held));
        let installed = GuardedPartition(Arc::new(State { table, place, token, held }));
        Ok(self.partitions().entry(partition.to_owned()).or_insert(installed).clone())
    }

    fn partitions(&self) -> std::sync::MutexGuard<'_, HashMap<String, GuardedPartition>> {
        self.0.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuardedPartition {
    /// Reads a row; none if it is not there.
    ///
    /// # Errors
    /// As [`Table::get`]; and [`Error::Fenced`] if a write of before was given
    /// up, and a newer holder has come.
    pub async fn get<T: DeserializeOwned>(&self, row: &str) -> Result<Option<Entity<T>>, Error> {
        let state = &self.0;
        check_row(row, &state.place.clone().row(row))?;
        state.settle().await?;
        state.table.get(state.key(), row).await
    }

    /// Reads the rows of the partition.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn query(&self) -> Result<Query, Error> {
        self.0.settle().await?;
        Ok(self.0.table.query(Some(self.0.key())))
    }

    /// Makes changes, all or none; none if a newer holder has taken over the
    /// partition. Writes of this holder to this partition go one after the
    /// other. If the storage does not answer, what became of it is found out,
    /// and it is tried again a few times.
    ///
    /// Dropping the future leaves it open whether the changes are made; that is
    /// settled before anything else is read or written here.
    ///
    /// # Errors
    /// [`Error::Fenced`]: stop. [`Error::Conflict`]: a row was not as expected.
    /// [`Error::Unavailable`]: it says whether something was written.
    /// [`Error::Invalid`]: it can't be done as it is; as far as that is known
    /// before, nothing was sent. [`Error::NeedsOperator`]: as it says.
    pub async fn commit(&self, transaction: &Transaction) -> Result<Receipt, Error> {
        let state = &self.0;
        transaction.check(&state.place)?;
        let mut held = state.held.lock().await;
        if held.unsure {
            state.find_out(&mut held, None).await?;
        }
        let (mut others, mut service) = (Patience::with_others(), Patience::with_service());
        loop {
            let number = new_number();
            let failed = match state.write(&mut held, &number, &transaction.changes).await? {
                Ok(etags) => return Ok(Receipt::new(&transaction.changes, etags)),
                Err(failed) => failed,
            };
            let again = match &failed.fault {
                fault if fault.is_unclear() => {
                    match state.find_out(&mut held, Some(&number)).await? {
                        Found::Written => return Ok(Receipt::default()),
                        Found::NotWritten => service.again(fault.retry_after()).await,
                    }
                }
                // Another with the same token has written: nothing was done.
                Fault::Refused { status: 412, .. } if failed.index == Some(0) => {
                    held.fence = state.read().await?;
                    others.again(Duration::ZERO).await
                }
                fault => fault.may_pass() && service.again(Duration::ZERO).await,
            };
            if !again {
                return Err(state.refused(&failed, &transaction.changes));
            }
        }
    }
}

impl State {
    fn key(&self) -> &str {
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
            Err(failed) if is_gone(&failed) => {
                Err(fenced(&self.table, &self.place, Written::No).await)
            }
            Err(failed) => Ok(Err(failed)),
        }
    }

    /// Before anything is read: no write of before may land any more.
    async fn settle(&self) -> Result<(), Error> {
        let mut held = self.held.lock().await;
        if held.unsure {
            self.find_out(&mut held, None).await?;
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
                Fault::Refused { status: 412, .. } => others.again(Duration::ZERO).await,
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
            (Some(0), Fault::Refused { status: 412, .. }) => {
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

/// Whether the fence row was not there.
fn is_gone(failed: &Failed) -> bool {
    let missing = |fault: &Fault| matches!(fault, Fault::Refused { status: 404, code, .. } if code != "TableNotFound");
    failed.index == Some(0) && missing(&failed.fault)
}

impl fmt::Debug for GuardedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedTable")
            .field("table", &self.0.table.name())
            .field("fence", &self.0.fence)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GuardedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardedPartition({})", self.0.place)
    }
}

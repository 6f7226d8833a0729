//! A table that is written to under a lock.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError},
};

use serde::de::DeserializeOwned;

use super::{
    Entity, Error, Query, Receipt, Table, Transaction, install::install, place::check_row,
    transaction::check_partition, write::Partition,
};
use crate::LockToken;

/// A table that is written to with a token: the storage itself refuses a write
/// once a newer holder has touched the same partition. Made by
/// [`Table::fenced`]. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct FencedTable(Arc<Shared>);

struct Shared {
    table: Table,
    fence: LockToken,
    /// Where the fence is up.
    partitions: std::sync::Mutex<HashMap<String, FencedPartition>>,
}

/// A partition in which the fence of this holder is up. Cheap to clone.
#[derive(Clone)]
pub struct FencedPartition(Arc<Partition>);

impl FencedTable {
    pub(super) fn new(table: Table, fence: LockToken) -> Self {
        let partitions = std::sync::Mutex::default();
        Self(Arc::new(Shared { table, fence, partitions }))
    }

    /// The lock and the token with which it writes.
    #[must_use]
    pub fn lock_token(&self) -> &LockToken {
        &self.0.fence
    }

    /// Puts up this holder's fence in a partition: from then on no earlier
    /// holder can write to it. Costs two calls the first time (three if nobody
    /// held it before, or if another user of the same token did), none after
    /// that.
    ///
    /// # Errors
    /// [`Error::Fenced`] if a newer holder was there already; else as
    /// [`FencedPartition::commit`].
    pub async fn partition(&self, partition: &str) -> Result<FencedPartition, Error> {
        if let Some(known) = self.partitions().get(partition) {
            return Ok(known.clone());
        }
        let Shared { table, fence, .. } = &*self.0;
        let token = fence.token().get();
        let place = table.place().partition(partition).token(token);
        check_partition(&place)?;
        let installed = install(table, &place, fence, table.deadline()).await;
        let fence = installed.map_err(|error| error.with_token(token))?;
        let installed = Partition::new(table.clone(), place, token, fence);
        let installed = FencedPartition(Arc::new(installed));
        Ok(self.partitions().entry(partition.to_owned()).or_insert(installed).clone())
    }

    fn partitions(&self) -> std::sync::MutexGuard<'_, HashMap<String, FencedPartition>> {
        self.0.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FencedPartition {
    /// Reads a row; none if it is not there.
    ///
    /// # Errors
    /// As [`Table::get`]; and [`Error::Fenced`] if a write of before was given
    /// up, and a newer holder has come.
    pub async fn get<T: DeserializeOwned>(&self, row: &str) -> Result<Option<Entity<T>>, Error> {
        let Partition { table, place, token, .. } = &*self.0;
        check_row(row, &place.clone().row(row))?;
        let by = table.deadline();
        self.0.settle(by).await?;
        let read = table.get_by(self.0.key(), row, by).await;
        read.map_err(|error| error.with_token(*token))
    }

    /// Reads the rows of the partition.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn query(&self) -> Result<Query, Error> {
        self.0.settle(self.0.table.deadline()).await?;
        Ok(Query::new(self.0.table.clone(), self.0.place.clone()))
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
        let committed = self.0.commit(transaction).await;
        committed.map_err(|error| error.with_token(self.0.token))
    }
}

impl fmt::Debug for FencedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedTable")
            .field("table", &self.0.table.name())
            .field("fence", &self.0.fence)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FencedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencedPartition({})", self.0.place)
    }
}

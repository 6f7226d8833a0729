//! Fenced table: a table whose writes present a fencing token.

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

/// A table whose writes present a token. The storage refuses a write after a newer
/// holder has opened the same partition. Returned by [`Table::fenced`]. Cheap to
/// clone; clones share the state of the partitions.
#[derive(Clone)]
pub struct FencedTable(Arc<Shared>);

struct Shared {
    table: Table,
    lock_token: LockToken,
    /// Partitions with this holder's fence, by partition key.
    partitions: std::sync::Mutex<HashMap<String, FencedPartition>>,
}

/// A partition with this holder's fence installed. Cheap to clone.
#[derive(Clone)]
pub struct FencedPartition(Arc<Partition>);

impl FencedTable {
    pub(super) fn new(table: Table, lock_token: LockToken) -> Self {
        let partitions = std::sync::Mutex::default();
        Self(Arc::new(Shared { table, lock_token, partitions }))
    }

    /// Lock and token that the writes present.
    #[must_use]
    pub fn lock_token(&self) -> &LockToken {
        &self.0.lock_token
    }

    /// Installs this holder's fence in a partition: from then on, no earlier holder
    /// can write to it. The first call for a partition makes two storage calls, or
    /// three if the partition is new or another user of the same token has opened
    /// it. Later calls make none.
    ///
    /// # Errors
    /// [`Error::Fenced`] if a newer holder has opened the partition; otherwise as
    /// [`FencedPartition::commit`].
    pub async fn partition(&self, partition: &str) -> Result<FencedPartition, Error> {
        if let Some(open) = self.partitions().get(partition) {
            return Ok(open.clone());
        }
        let Shared { table, lock_token, .. } = &*self.0;
        let token = lock_token.token().get();
        let place = table.place().partition(partition).token(token);
        check_partition(&place)?;
        let installed = install(table, &place, lock_token, table.deadline()).await;
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
    /// Reads a row. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Table::get`], and [`Error::Fenced`] if the outcome of an earlier write is
    /// pending and a newer holder has taken over.
    pub async fn get<T: DeserializeOwned>(&self, row: &str) -> Result<Option<Entity<T>>, Error> {
        let Partition { table, place, token, .. } = &*self.0;
        check_row(row, &place.clone().row(row))?;
        let by = table.deadline();
        self.0.resolve_pending(by).await?;
        let read = table.get_by(self.0.key(), row, by).await;
        read.map_err(|error| error.with_token(*token))
    }

    /// Creates a query of the rows of the partition.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn query(&self) -> Result<Query, Error> {
        self.0.resolve_pending(self.0.table.deadline()).await?;
        Ok(Query::new(self.0.table.clone(), self.0.place.clone()))
    }

    /// Makes all changes of the transaction or none. Makes none if a newer holder has
    /// taken over the partition. Writes of this holder to this partition are
    /// sequential. If a response is lost, the call determines the outcome and retries
    /// a few times.
    ///
    /// Cancel safety: after the future is dropped, the outcome of the transaction is
    /// unknown. The next read or write of this partition resolves it first.
    ///
    /// # Errors
    /// - [`Error::Fenced`]: stop, a newer holder has taken over.
    /// - [`Error::Conflict`]: a row is not in the expected state.
    /// - [`Error::Unavailable`]: retry; `written` states the outcome.
    /// - [`Error::Invalid`]: change the call. Limits are checked before anything is
    ///   sent.
    /// - [`Error::NeedsOperator`]: the fence is missing or invalid.
    pub async fn commit(&self, transaction: &Transaction) -> Result<Receipt, Error> {
        let committed = self.0.commit(transaction).await;
        committed.map_err(|error| error.with_token(self.0.token))
    }
}

impl fmt::Debug for FencedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedTable")
            .field("table", &self.0.table.name())
            .field("lock_token", &self.0.lock_token)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FencedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencedPartition({})", self.0.place)
    }
}

//! Tables of Azure Storage that refuse a stale holder.
//!
//! # Use
//!
//! ```no_run
//! use leasehold_client::Client;
//! use leasehold_fence::{azure::Account, table::{Table, Transaction}};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Stock {
//!     amount: i64,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let account = Account::from_connection_string(&std::env::var("AZURE_STORAGE_CONNECTION_STRING")?)?;
//! let client = Client::connect("http://127.0.0.1:7420").await?;
//!
//! // All programs derive the same lock name from the table, without configuration.
//! let guard = client.table_lock(account.name(), "stock")?.acquire().await?;
//! let table = Table::new(&account, "stock")?.fenced(&guard);
//!
//! // From now on, no earlier holder can write to this partition.
//! let shelf = table.partition("shelf-7").await?;
//! if let Some(nuts) = shelf.get::<Stock>("nuts").await? {
//!     let fewer = Stock { amount: nuts.value.amount - 1 };
//!     // Refused completely if a newer holder has taken over.
//!     shelf.commit(&Transaction::new().replace("nuts", &fewer)).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees and limitations
//!
//! **After a newer holder has called [`FencedTable::partition`], no write with a
//! lower token is applied to that partition**, regardless of pauses and clocks. Data
//! that the newer holder reads from then on is changed by no older holder.
//!
//! - This holds for writes through a [`FencedTable`]. A write that bypasses it
//!   ([`Table::commit`], another program) is applied.
//! - It holds for each partition from the newer holder's first access to *that
//!   partition*. The lock of a table covers all partitions, but each partition is
//!   fenced separately, because a transaction has one partition.
//! - A *read* of a stale holder is not refused. Its next write is.
//! - Users of one token do not exclude each other. If a token is passed on, or used
//!   for two [`FencedTable`]s, both can write. Neither overwrites a write that it has
//!   not read: the later write fails with a [conflict](Conflict::SameToken) and
//!   changes nothing. Clones of one [`FencedTable`] share their state and get no such
//!   conflict.
//! - Tokens of different locks can't be compared. The partition stores the name of
//!   its lock, and refuses holders of other locks.
//! - Rows that begin with `~leasehold.` are reserved for the fence. A program that
//!   deletes all of them removes the highest token. The next holder is then accepted
//!   with any token.
//!
//! # How it works
//!
//! Each partition has a head row `~leasehold.head`, with the highest token and the
//! name of the lock, and a fence row `~leasehold.fence.TOKEN` of the current holder.
//! At its first access, a new holder makes one transaction: raise the head from the
//! version that was read, delete the old fence row, insert its own. A write is one
//! transaction too: advance the fence row to its next version, and make the changes.
//! If the fence row is gone, the transaction fails with [`Error::Fenced`].
//!
//! Each write requires the current version of the fence row, so the writes of one
//! holder to one partition are sequential. The fence row contains the IDs of the last
//! writes. If a response is lost, the row shows whether the write was applied. If it
//! was not, the row is advanced, so that the write can't be applied later, and the
//! write is retried. The outcome is [unknown](Written::Unknown) only if the storage
//! is unreachable for these calls too, or if a newer holder has taken over. The
//! handle then resolves the outcome before its next read or write.
//!
//! # Types
//!
//! A value is a struct or a map with plain fields. `i64`, `u64` and `u32` are stored
//! as `Edm.Int64`, smaller integers as `Edm.Int32`, floats as `Edm.Double`, strings
//! and unit variants of enums as `Edm.String`, booleans as `Edm.Boolean`. [`Guid`],
//! [`DateTime`] and [`Binary`] have types of their own. `None` is left out. Serialize
//! nested values yourself.

mod batch;
mod deadline;
mod decode;
mod edm;
mod encode;
mod entity;
mod error;
mod fault;
mod fence;
mod fenced;
#[cfg(test)]
pub(super) mod fuzz;
mod head;
mod install;
mod place;
mod property;
mod query;
mod rest;
mod transaction;
mod write;

#[cfg(test)]
mod tests;

pub use super::{ETag, Written};
pub use edm::{Binary, DateTime, Guid};
pub use entity::Entity;
pub use error::{Conflict, Error};
pub use fenced::{FencedPartition, FencedTable};
pub use place::{Place, quoted};
pub use query::Query;
pub use rest::{Receipt, Table};
pub use transaction::{MAX_CHANGES, Transaction};

/// UUID, as in [`Guid`].
pub use azure_core::Uuid;
/// Date and time, as in [`DateTime`] and [`Entity::changed`].
pub use azure_core::time::OffsetDateTime;

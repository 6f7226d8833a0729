//! Tables that refuse a stale holder.
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
//! // All programs that write to this table get the same lock, without a word.
//! let guard = client.table_lock(account.name(), "stock")?.acquire().await?;
//! let table = Table::new(&account, "stock")?.fenced(&guard);
//!
//! // From here on, no earlier holder can write to this partition.
//! let shelf = table.partition("shelf-7").await?;
//! if let Some(nuts) = shelf.get::<Stock>("nuts").await? {
//!     let fewer = Stock { amount: nuts.value.amount - 1 };
//!     // Refused as a whole if a newer holder has taken over meanwhile.
//!     shelf.commit(&Transaction::new().replace("nuts", &fewer)).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed, and what not
//!
//! **No write with an older token lands in a partition after a newer holder has
//! called [`FencedTable::partition`] for it**, however long the older one was
//! paused and whatever its clock says. So what the newer holder reads from then
//! on is changed by nobody else.
//!
//! - This holds for writes through a [`FencedTable`]. A program that writes past it
//!   ([`Table::commit`], other programs) is not stopped.
//! - It holds for each partition from the moment when the newer holder first
//!   touches *that partition*. A lock of the whole table covers them all, but
//!   the fence is put up one by one, because a transaction has one partition.
//! - A *read* of a stale holder is not refused. Its next write is.
//! - Holders of one token do not exclude each other: who passes a token on, or
//!   makes two [`FencedTable`]s of it, has two that may write. Neither
//!   overwrites what it has not seen: the one that comes second is told of a
//!   [conflict](Conflict::SameToken), and nothing of it was written. Clones of
//!   one [`FencedTable`] share what they know, and are not told of each other.
//! - Tokens of different locks can't be compared. The partition remembers which
//!   lock fences it, and refuses holders of another.
//! - The rows that begin with `~leasehold.` are the fence's own. A program that deletes
//!   all of them takes the memory of the highest token away: then the next
//!   that comes is believed to be the newest.
//!
//! # How it works
//!
//! Each partition has a row `~leasehold.head`, with the highest token and the
//! name of the lock, and a row `~leasehold.fence.TOKEN` of the present holder.
//! A new holder's first touch is one transaction: raise the head from the
//! version that was read, delete the old fence, insert the own. A write is one
//! transaction too: the own fence row is moved on to its next version, and the
//! changes are made. If the fence is gone, nothing is written, and the answer is
//! [`Error::Fenced`].
//!
//! Each write names the version of the fence that it moves on from. So writes
//! of one holder to one partition go one after the other, and one whose answer
//! was lost is either found in the fence row, which has the numbers of the last
//! writes, or is made impossible by moving the fence on past it: then it is
//! tried again. Only if the storage can't be reached for that either, or a newer
//! holder has come in between, is it [not known](Written::Unknown) whether it
//! was written; nothing is read or written through this handle then before that
//! is settled.
//!
//! # Types
//!
//! A value is a struct (or a map) whose fields are plain: `i64`, `u64` and `u32`
//! are stored as `Edm.Int64`, smaller whole numbers as `Edm.Int32`, floats as
//! `Edm.Double`, texts and unit variants of enums as `Edm.String`, booleans as
//! they are; [`Guid`], [`DateTime`] and [`Binary`] as their names say. `None`
//! is left out. What is nested must be serialized by the user.

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

/// What identifies things, as in [`Guid`].
pub use azure_core::Uuid;
/// A moment, as in [`DateTime`] and [`Entity::changed`].
pub use azure_core::time::OffsetDateTime;

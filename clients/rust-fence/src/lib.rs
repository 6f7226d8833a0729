//! Resources that refuse a stale holder of a Leasehold lock.
//!
//! A lock can't stop a process that is paused past its deadline and then writes.
//! A fence can: the resource compares the token of each write with the highest
//! token seen, in one step with the write.
//!
//! - `table` and `blob` (feature `azure`): the storage compares the tokens.
//! - `queue` (feature `azure`): one consumer at a time. A queue can't compare
//!   tokens; the module documents the remaining guarantees.
//! - `http` (feature `http`): a `tower` layer for HTTP and gRPC servers.
//! - [`sql`]: statements for PostgreSQL and SQLite.
//! - [`HighestToken`]: the comparison for any other resource.
#![forbid(unsafe_code)]

#[cfg(feature = "azure")]
pub mod azure;
#[cfg(feature = "azure")]
pub mod blob;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "azure")]
pub mod queue;
pub mod sql;
#[cfg(feature = "azure")]
pub mod table;

#[cfg(feature = "azure")]
mod error;
#[cfg(any(feature = "azure", feature = "http"))]
mod escape;
#[cfg(feature = "azure")]
mod etag;
#[cfg(feature = "azure")]
mod fault;
#[cfg(all(test, feature = "azure"))]
mod fuzz;
mod highest_token;
mod lock_token;
#[cfg(feature = "azure")]
mod retry;
#[cfg(feature = "azure")]
mod written;

#[cfg(feature = "azure")]
pub use error::Error;
#[cfg(feature = "azure")]
pub use etag::ETag;
pub use highest_token::{Admitted, HighestToken, StaleToken};
pub use lock_token::LockToken;
#[cfg(feature = "azure")]
pub use written::Written;

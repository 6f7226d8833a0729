//! Resources that refuse a stale holder of a Leasehold lock.
//!
//! A lock alone can't stop a process that was paused while it was writing. A
//! fence can: the resource compares the token of each write with the highest
//! token that it has seen, in one step with the write.
//!
//! - `table` and `blob`, with the feature `azure`: the storage itself compares
//!   the tokens.
//! - `queue`, with the feature `azure`: a queue can't compare anything. The
//!   module describes what a lock does for its consumers, and what it does not.
//! - `http`, with the feature `http`: a layer for servers of HTTP and gRPC.
//! - [`sql`]: statements for a database.
//! - [`HighestToken`]: the comparison itself, for everything else.
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

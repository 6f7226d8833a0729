//! Resources of a storage account that refuse a holder that was overtaken.
//!
//! A lock alone can't stop a process that was paused while it was writing. A
//! guard can: the storage itself compares the token of whoever writes with the
//! greatest that it has seen, in one step with the write. See [`table`] and [`blob`]. A queue can't compare anything; what
//! a lock does for its consumers all the same, and what it does not, is said in
//! [`queue`].

pub mod blob;
pub mod queue;
pub mod table;

mod etag;
mod fault;
#[cfg(test)]
mod fuzz;
mod patience;
mod written;

pub use etag::ETag;
pub use written::Written;

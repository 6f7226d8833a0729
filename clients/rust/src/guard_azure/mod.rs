//! Resources of a storage account that refuse a holder that was overtaken.
//!
//! A lock alone can't stop a process that was paused while it was writing. A
//! guard can: the storage itself compares the token of whoever writes with the
//! greatest that it has seen, in one step with the write. See [`table`].

pub mod table;

//! Single calls to the storage account: one function for each operation on a
//! blob, the limit on concurrent calls, and the classification of failures.

pub(crate) mod blob;
pub(crate) mod fault;
pub(crate) mod health;
pub(crate) mod limiter;

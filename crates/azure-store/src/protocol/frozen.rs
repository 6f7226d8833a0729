//! Frozen locks: the error of every acquire of a lock whose record is invalid or
//! regressed.

use crate::AzureStore;
use leasehold_store::Error;
use leasehold_types::LockName;

impl AzureStore {
    /// Logs that the record of a lock can't be trusted, and returns the error. An
    /// operator must repair or delete the blob.
    pub(crate) fn data_loss(&self, name: &LockName, path: &str, corrupt: &str) -> Error {
        let error = frozen(path, corrupt);
        self.shared.cache.invalidate(name);
        tracing::error!(namespace = name.namespace(), lock = name.name(), "{error}");
        error
    }
}

/// Returns the error of every acquire of a lock whose record is invalid. `corrupt`
/// is the problem with the blob, as in "it has no token".
pub(crate) fn frozen(path: &str, corrupt: &str) -> Error {
    let found = match corrupt.strip_prefix("it ") {
        Some(predicate) => format!("blob {path} {predicate}"),
        None => format!("blob {path}: {corrupt}"),
    };
    let why = format!(
        "{found}. Repair the blob, or delete it if no client uses the lock; new \
         tokens then start at the storage clock"
    );
    Error::DataLoss { why }
}

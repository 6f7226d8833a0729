//! Settings of the store.

use std::time::Duration;

use leasehold_azure_account::AccountSettings;

/// Settings of the store: the account, the container and the limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Account, and the credential for it.
    pub account: AccountSettings,
    /// Container of the locks' blobs.
    pub container: String,
    /// Prefix of the blobs' paths; may be empty.
    pub prefix: String,
    /// Makes daemons hold a lease on the container, so that it is not deleted by
    /// accident.
    pub protect_container: bool,
    /// Time for which a lock must be idle before its blob is deleted; zero keeps
    /// all blobs.
    pub gc_after: Duration,
    /// Maximum number of concurrent storage calls.
    pub max_storage_calls: usize,
}

//! Release of a lease.
//!
//! One call under the lease's ID, which is never used again. A release that is
//! repeated, or that comes after the lease was lost, therefore changes nothing.

use crate::{
    AzureStore, MIN_LEASE_DURATION,
    calls::{CallOptions, fault::Fault, limiter::Purpose},
};
use leasehold_rules::call_timeout;
use leasehold_store::{LeaseId, Release};
use leasehold_types::LockName;

impl AzureStore {
    /// Removes a hold from the cache: breaks no longer concern it.
    pub(crate) fn forget_hold(&self, name: &LockName, id: LeaseId) {
        self.shared.cache.change(name, |cached| {
            cached.hold.take_if(|(held, _)| *held == id);
        });
    }

    /// Implements [`LeaseStore::release`](leasehold_store::LeaseStore::release).
    pub(crate) async fn release_hold(&self, name: LockName, id: LeaseId) -> Release {
        let timeout = call_timeout(MIN_LEASE_DURATION);
        let options = CallOptions { purpose: Purpose::Release, timeout };
        self.release_lease(&self.path(&name), id, options).await
    }

    /// Releases a lease. Counts as released if the lease is no longer held under
    /// this ID.
    pub(crate) async fn release_lease(
        &self,
        path: &str,
        id: LeaseId,
        options: CallOptions,
    ) -> Release {
        match self.shared.blobs.release(path, id, options).await {
            Ok(())
            | Err(Fault::NotOurs { .. } | Fault::NoBlob | Fault::NoContainer | Fault::Changed) => {
                Release::Released
            }
            Err(fault) => Release::Unknown { why: fault.why() },
        }
    }
}

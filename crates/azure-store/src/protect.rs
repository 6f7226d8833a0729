//! Lease on the container, which protects it against accidental deletion. All daemons
//! use the same lease ID. It follows from the container's name, so that an operator who
//! deletes the container on purpose can name it.

use std::{sync::Arc, time::Duration};

use azure_storage_blob::models::BlobContainerClientAcquireLeaseOptions;

use crate::{account::Account, calls::fault::Fault};
use leasehold_runtime::sleep;

/// Duration of the lease on the container.
pub(crate) const DURATION: Duration = Duration::from_secs(60);

/// Returns the ID of the lease on a container of this name.
#[must_use]
pub fn lease_id(container: &str) -> String {
    // Any mapping is suitable if all daemons compute the same one.
    let check = crc32fast::hash(container.as_bytes());
    format!("1ea5e401-d000-4000-8000-0000{check:08x}")
}

/// Acquires the lease repeatedly: under the same ID, that renews it. Never ends. The
/// lease expires after the last daemon has stopped.
pub(crate) async fn keep(account: Arc<Account>, name: String) {
    let mut failing = false;
    loop {
        let options = BlobContainerClientAcquireLeaseOptions {
            proposed_lease_id: Some(lease_id(&name)),
            ..Default::default()
        };
        let acquire = account.container().acquire_lease(DURATION.as_secs() as i32, Some(options));
        let kept = tokio::select! {
            kept = acquire => kept.map(drop).map_err(|error| Fault::from(error).why()),
            () = sleep(DURATION / 6) => Err("no answer".to_owned()),
        };
        if let Err(why) = &kept
            && !failing
        {
            tracing::warn!("the container {name:?} is not protected against deletion: {why}");
        }
        failing = kept.is_err();
        sleep(DURATION / 3).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_id_follows_from_name_and_is_a_guid() {
        assert_eq!(lease_id("leasehold"), lease_id("leasehold"));
        assert_ne!(lease_id("leasehold"), lease_id("other"));
        let lengths: Vec<_> = lease_id("leasehold").split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
    }
}

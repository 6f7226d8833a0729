//! Protection of the container against deletion.

use azure_storage_blob::models::{
    BlobContainerClientAcquireLeaseOptions, BlobContainerClientGetPropertiesResultHeaders,
    LeaseState,
};

use super::limited;
use crate::{Settings, account::Account, calls::fault::Fault, protect};
use leasehold_store::finding::Finding;

const CHECK: &str = "deletion";

pub(super) async fn inspect(account: &Account, settings: &Settings) -> Finding {
    if settings.protect_container {
        keep(account, settings).await
    } else {
        seen(account, settings).await
    }
}

/// Acquires the same lease as the daemons. It expires if no daemon renews it.
async fn keep(account: &Account, settings: &Settings) -> Finding {
    let options = BlobContainerClientAcquireLeaseOptions {
        proposed_lease_id: Some(protect::lease_id(&settings.container)),
        ..Default::default()
    };
    let seconds = protect::DURATION.as_secs() as i32;
    match limited(account.container().acquire_lease(seconds, Some(options))).await {
        Ok(_) => Finding::ok(
            CHECK,
            format!("daemons keep a lease on the container; {}", how_to_delete(settings)),
        ),
        Err(Fault::Held) => {
            let text = "the container can't be protected: another process has a lease on it";
            Finding::warning(CHECK, text).fix("Release that lease, or break it")
        }
        Err(fault) => {
            let text = format!("the container can't be protected: {}", fault.what());
            Finding::warning(CHECK, text).fix(
                "Use an identity, the account key or an account SAS, which may lease a \
                 container. Or leave out azure_protect_container",
            )
        }
    }
}

async fn seen(account: &Account, settings: &Settings) -> Finding {
    let state = limited(account.container().get_properties(None)).await;
    let state = state.ok().and_then(|answer| answer.lease_state().ok().flatten());
    if let Some(LeaseState::Leased | LeaseState::Breaking) = state {
        let text = "another process has a lease on the container. If that process is a daemon";
        return Finding::note(CHECK, format!("{text}: {}", how_to_delete(settings)));
    }
    Finding::note(CHECK, "the container and all its locks can be deleted by accident")
        .fix("azure_protect_container = true lets daemons keep a lease on it")
}

fn how_to_delete(settings: &Settings) -> String {
    let name = &settings.container;
    let id = protect::lease_id(name);
    format!("to delete it, use `az storage container delete --name {name} --lease-id {id}`")
}

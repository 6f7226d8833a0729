//! Contract tests: behavior of the service that the Azure store relies on,
//! checked against Azurite over plain REST, without the daemon's code. Tests
//! state each known difference between Azurite and Azure, with the behavior
//! that Azure documents.

mod access;
mod conditions;
mod containers;
mod expiry;
mod lease_table;
mod limits;
mod listing;
mod metadata;
mod races;
mod repetition;
mod sdk;
mod simulated;

use leasehold_test_support::{
    azurite::Azurite,
    rest::{Blob, Container, Rest},
};
use std::time::Duration;

/// Lease IDs: of the holder, of another client, and an unused one.
const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb";
const C: &str = "cccccccc-cccc-4ccc-8ccc-cccccccccccc";

/// Creates a container.
async fn container(name: &str) -> Container {
    let container = Rest::new(Azurite::shared()).container(name);
    container.create().await.ok();
    container
}

/// Waits until a blob is in a lease state.
async fn wait_for_state(blob: &Blob, state: &str) {
    while blob.head().await.lease_state() != state {
        leasehold_runtime::sleep(Duration::from_millis(50)).await;
    }
}

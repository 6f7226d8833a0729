//! What the Azure store counts on, straight against Azurite: plain REST, with
//! none of the daemon's code in between. Where Azurite is known to differ from
//! Azure, the test says so, and what Azure documents.

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
mod twin;

use leasehold_test_support::{
    azurite::Azurite,
    rest::{Blob, Container, Rest},
};
use std::time::Duration;

/// Lease ids: of the holder, of somebody else, of nobody.
const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb";
const C: &str = "cccccccc-cccc-4ccc-8ccc-cccccccccccc";

/// A container of this name, just created.
async fn container(name: &str) -> Container {
    let container = Rest::new(Azurite::shared()).container(name);
    container.create().await.ok();
    container
}

/// Waits until a blob's lease is in a state.
async fn reaches(blob: &Blob, state: &str) {
    while blob.head().await.lease_state() != state {
        leasehold_runtime::sleep(Duration::from_millis(50)).await;
    }
}

//! What the Azure store counts on, straight against Azurite: plain REST, with
//! none of the daemon's code in between. Where Azurite is known to differ from
//! Azure, the test says so, and what Azure documents.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

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
#[path = "../support/mod.rs"]
mod support;
mod twin;

/// The simulated service's protocol and its states.
#[path = "../sim/src/http.rs"]
#[allow(dead_code, unreachable_pub, reason = "the simulation uses the rest")]
mod http;
#[path = "../sim/src/storage.rs"]
#[allow(dead_code, unreachable_pub, reason = "the simulation uses the rest")]
mod storage;

/// What it is told of time.
mod world {
    pub(crate) type Nanos = u64;
    pub(crate) const SECOND: Nanos = 1_000_000_000;
}

use std::time::Duration;

use support::{
    azurite::Azurite,
    rest::{Blob, Container, Rest},
};

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

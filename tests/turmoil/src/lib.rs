//! Whole daemons, clients and a storage account over simulated TCP.
//!
//! The core simulation (`tests/simulator`) passes messages directly between the
//! ends of a session stream. Here, the layers in between run as well: HTTP/2,
//! gRPC streams, keep-alives, connects and resets, the daemon's listeners,
//! drain and shutdown, and HTTP/1 between the storage SDK and the storage
//! account. Hosts, network and time are those of turmoil.
//!
//! - `time.rs`: clocks of the product, on turmoil's time
//! - `storage.rs`: host of the storage account; `wire.rs`: link to it
//! - `daemon.rs`, `client.rs`: other hosts; `link.rs`: link between them
//! - `cluster.rs`: all hosts, and their faults
//! - `record.rs`: history for the checker; `panics.rs`: panics of tasks
//! - `walk.rs`: random faults from a seed
//!
//! **A cut loses data permanently.** turmoil's TCP does not retransmit, so a
//! connection that sends during a cut never recovers, and each end must detect
//! that. With `hold`, all data arrives later, as with TCP retransmission.
//!
//! **Determinism.** The network's delays, the order in which hosts run, lease
//! IDs, jitter and all decisions of the programs are derived from the seed. Not
//! derived from it are the branch that `tokio::select!` polls first where it is
//! not `biased` (this would need tokio's unstable features), the order of
//! headers, and the request IDs of the storage SDK. None of these has been
//! observed to change a history; a test runs seeds twice and compares.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a bug in the simulation"
)]

pub mod client;
pub mod cluster;
pub mod daemon;
pub mod link;
mod panics;
pub mod record;
pub mod storage;
pub mod time;
pub mod walk;
pub mod wire;

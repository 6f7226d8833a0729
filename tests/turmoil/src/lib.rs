//! Whole daemons, clients and a storage account over simulated TCP.
//!
//! The core simulation (`tests/simulator`) hands messages from one end of a session
//! stream to the other. Here what lies between runs too: HTTP/2, gRPC streams,
//! keep-alives, connects and resets, the daemon's listeners, its drain and its
//! stop, and HTTP/1 between the storage SDK and the storage account. Hosts,
//! network and time are those of turmoil.
//!
//! - `time.rs`: the product's clocks, on turmoil's time
//! - `storage.rs`: the storage account, a host; `wire.rs`: the way to it
//! - `daemon.rs`, `client.rs`: the other hosts; `line.rs`: between them
//! - `stage.rs`: all of them, and what can be done to them
//! - `record.rs`: what happens, as the checker wants it; `panics.rs`: in tasks
//! - `walk.rs`: faults at random, from a seed
//!
//! **A cut loses for good what is sent meanwhile.** turmoil's TCP does not send
//! again, so a connection that had something to say during a cut never gets
//! over it, and each end has to find that out by itself. With `hold`, all of it
//! arrives later, as with TCP that sends again.
//!
//! **What repeats itself.** The network's delays, the order in which hosts run,
//! lease ids, jitter and everything that the programs decide come from the seed.
//! Not from it: which branch `tokio::select!` looks at first where it is not
//! `biased` (that would need tokio's unstable features), the order of the
//! headers and the request ids of the storage SDK. None of these has been seen
//! to change what happens; a test runs seeds twice and compares.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a mistake in the simulation itself"
)]

pub mod client;
pub mod daemon;
pub mod line;
mod panics;
pub mod record;
pub mod stage;
pub mod storage;
pub mod time;
pub mod walk;
pub mod wire;

//! The daemon, the client library and the fences with a storage account: Azurite, the storage
//! emulator of Microsoft, as a process.
//!
//! The tests share one Azurite. Each test uses containers, tables and queues of its own; a
//! test that stops the emulator starts another one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod account;
mod budget;
mod cli_election;
mod client_election;
mod contract;
mod corruption;
mod daemons;
mod doctor;
mod election_failover;
mod faults;
mod fence;
mod http;
mod proxy;
mod scene;
mod store_conformance;

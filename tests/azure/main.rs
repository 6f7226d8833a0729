//! Tests of the daemon, the client library and the fences against Azurite, Microsoft's storage
//! emulator, as a process.
//!
//! The tests share one Azurite. Each test has its own containers, tables and queues. A test
//! that stops the emulator starts another one.

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
mod fixture;
mod http;
mod metrics;
mod proxy;
mod store_conformance;
mod telemetry;

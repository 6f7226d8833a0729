//! Tests without a storage account: daemons as processes on the embedded store (protocol,
//! command line, HTTP endpoint, client library), the configuration, the fences and the
//! decoders.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cli;
mod cli_demo;
mod cli_election;
mod cli_explain;
mod cli_top;
mod client;
mod client_api;
mod client_election;
mod client_endpoints;
mod config;
mod daemon;
mod data_directory;
mod decoders;
mod fence;
mod http;
mod logs;
mod metrics;
mod protocol;
mod protocol_status;
mod store_conformance;
mod telemetry;

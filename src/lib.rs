//! Leasehold: a distributed lock and leader-election service on Azure Blob
//! leases. This package is the daemon and its command line.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod driver;
pub mod http;
pub mod rpc;
pub mod telemetry;

//! Leasehold: a distributed lock and leader-election service on Azure Blob
//! leases. This package is the daemon and its command line.
//!
//! A request passes these modules, and its answer returns the same way:
//!
//! 1. [`listen`] accepts the connection.
//! 2. [`rpc`] reads the message, decodes it, and encodes the answer. [`http`] does
//!    so for clients without gRPC, which can only read.
//! 3. [`driver`] gives the request and the time to the core
//!    (`leasehold_core`), which decides. The driver carries out the actions that
//!    follow: messages to streams, calls to the store.
//! 4. The store (`leasehold_embedded_store` or `leasehold_azure_store`) acquires, renews
//!    and releases leases. Its answer is the core's next event.
//!
//! [`daemon`] connects these parts, [`config`] and [`telemetry`] set them up, and
//! [`cli`] starts them. Safety rules are in `leasehold_rules`.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod driver;
pub mod http;
pub mod listen;
pub mod rpc;
pub mod telemetry;

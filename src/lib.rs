//! Leasehold: named locks with fencing tokens.
pub(crate) use leasehold_time::mutant;

pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod driver;
pub mod error;
pub mod holder;
pub mod http;
pub mod lease;
pub mod lock;
pub mod name;
pub mod observe;
pub mod rpc;
pub mod schedule;
mod secret;
pub mod session;
pub mod task;
pub mod telemetry;
pub mod watch;

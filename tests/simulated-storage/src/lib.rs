//! Simulated storage account: blobs and their leases (`storage`), and the part of the
//! service's REST protocol that Leasehold uses (`http`).
//!
//! The service does no I/O and reads no clock. The caller passes the time with
//! each call, so that a simulation controls time. The contract tests
//! (`tests/azure/contract`) compare its table of lease states with that of the
//! emulator.

pub mod http;
pub mod storage;

/// Simulated time in nanoseconds.
pub type Nanos = u64;

/// One second of simulated time.
pub const SECOND: Nanos = 1_000_000_000;

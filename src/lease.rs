//! Stores of leases.

pub mod azure;

//! Tests in virtual time: seeds of the simulation, and storage accounts that answer anything.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod answers;
mod safety;
mod seeds;

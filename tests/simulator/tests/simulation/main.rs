//! Tests in virtual time: seeds of the simulation, and storage accounts with
//! arbitrary answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod answers;
mod safety;
mod seeds;

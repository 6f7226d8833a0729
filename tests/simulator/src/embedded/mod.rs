//! Daemons on the embedded store: one place, with a data directory on a
//! simulated disk instead of a storage account.
//!
//! `plan.rs` makes the plan of such a seed, `disk.rs` simulates the directory,
//! `mutants.rs` breaks its rules, `daemon.rs` starts and replaces daemons, and
//! `faults.rs` has what happens to the directory.

pub mod daemon;
pub mod disk;
pub mod faults;
pub mod mutants;
pub mod plan;

/// Every sixteenth seed. Those of other plans keep their random numbers.
#[must_use]
pub const fn is_embedded(seed: u64) -> bool {
    seed % 16 == 14
}

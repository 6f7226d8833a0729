//! Daemons on the embedded store: one place, with a data directory on a
//! simulated disk instead of a storage account.
//!
//! `plan.rs` makes the plan of such a seed, `disk.rs` simulates the directory,
//! `mutants.rs` breaks its rules, `daemon.rs` starts and replaces daemons, and
//! `faults.rs` injects faults of the directory.

pub mod daemon;
pub mod disk;
pub mod faults;
pub mod mutants;
pub mod plan;

/// Returns whether the seed uses the embedded store: every sixteenth does, so
/// that the random numbers of other seeds do not change.
#[must_use]
pub const fn is_embedded(seed: u64) -> bool {
    seed % 16 == 14
}

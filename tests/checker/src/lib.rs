//! Checker of recorded histories: verifies that a run kept the guarantees of Leasehold.
//!
//! A [`History`] contains the requests and responses of clients, the leases of daemons and
//! of the storage, and the injected faults. The simulation records it in true time; the
//! fault-injection harness with real processes uses the clock of its machine. [`check`]
//! returns the violations. `leasehold-check FILE` does the same for a file that
//! [`write()`] wrote.

mod check;
mod format;
mod history;
mod index;
mod lines;
mod report;
mod stats;
#[cfg(test)]
mod tests;

pub use check::check;
pub use history::{Bounds, Entry, Event, History, Kind, Nanos};
pub use lines::{ReadError, read, write};
pub use report::Violation;
pub use stats::Stats;

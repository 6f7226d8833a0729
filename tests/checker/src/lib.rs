//! Checks recorded histories of Leasehold against what it guarantees.
//!
//! A [`History`] is what clients asked for and were told, what daemons and the
//! storage believed, and what was done to them. The simulation records it in
//! true time; the harness with real processes on one machine's clock.
//! [`check`] says what in it must not have happened. `leasehold-check FILE` does
//! the same for a file that [`write()`] wrote.

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

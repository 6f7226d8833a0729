//! Checks recorded histories of Leasehold against what it guarantees.
//!
//! A [`History`] is what clients asked for and were told, what daemons and the
//! storage believed, and what was done to them. The simulation records it in
//! true time; the harness with real processes on one machine's clock.

mod history;

pub use history::{Bounds, Entry, Event, History, Kind, Nanos};

//! Time as Leasehold's client and daemon see it: a clock that keeps counting
//! while the machine sleeps, timers on that clock, and the start of tasks.
//!
//! Internal to the project. The client re-exports [`Moment`], and nothing else
//! of this crate is part of its API.
#![forbid(unsafe_code)]

pub mod clock;
pub mod mutant;
#[cfg(feature = "simulation")]
pub mod simulation;
mod suspend_proof;
pub mod task;

pub use clock::Moment;

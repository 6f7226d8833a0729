//! Time and randomness as Leasehold's client and daemon see them: a clock that
//! keeps counting while the machine sleeps, the wall clock, and random numbers.
//!
//! Internal to the project. The client re-exports [`Moment`], and nothing else
//! of this crate is part of its API. No async runtime: timers and tasks are in
//! `leasehold-runtime`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod entropy;
#[cfg(feature = "simulation")]
pub mod simulation;
mod suspend_proof;

pub use clock::{ClockPair, Moment};
pub use entropy::{Entropy, HashMap};

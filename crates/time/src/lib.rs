//! Time and randomness of Leasehold's client and daemon: a clock that keeps
//! counting while the machine is suspended, the wall clock, and random numbers.
//!
//! Internal to the project. The client re-exports only [`Moment`]. This crate
//! does not depend on an async runtime: timers and tasks are in
//! `leasehold-runtime`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod entropy;
#[cfg(feature = "simulation")]
pub mod simulation;
mod suspend_proof;

pub use clock::{ClockPair, Moment};
pub use entropy::{Entropy, HashMap};

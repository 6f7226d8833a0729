//! Timers and tasks: on tokio, or in a simulated world. Timers of the runtime do
//! not count through suspend; clippy.toml refuses them elsewhere.
//!
//! Internal to the project.
#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
pub mod simulation;
mod task;
mod timer;

pub use task::{spawn, spawn_on};
pub use timer::{sleep, sleep_until, sleep_until_any};

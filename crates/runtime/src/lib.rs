//! Timers and tasks, on tokio or in a simulated world. tokio's own timers do not
//! count through suspend, so clippy.toml disallows them elsewhere.
//!
//! Internal to the project.
#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
pub mod simulation;
mod task;
mod timer;

pub use task::{spawn, spawn_on};
pub use timer::{sleep, sleep_until, sleep_until_any};

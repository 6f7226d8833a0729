//! Timers and tasks: on tokio, or in a simulated world. The one crate that starts
//! tasks and sleeps; clippy.toml refuses tokio's own functions elsewhere.
//!
//! Internal to the project.
#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
pub mod simulation;
mod task;
mod timer;

pub use task::{spawn, spawn_on};
pub use timer::{sleep, sleep_until, sleep_until_any};

//! Decoders that can be reached from outside, fed with what nobody would send
//! on purpose. Those that can't are fuzzed next to their code. See
//! `answers/` for what storage accounts answer, and
//! `tests/fuzz/src/lib.rs` for how, for how long, and how to repeat a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod config;
mod names;
mod sockets;

/// Stands for a secret wherever it is put.
const HUSH: &str = "aHVzaGh1c2g";

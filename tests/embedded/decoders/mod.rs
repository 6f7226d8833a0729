//! Decoders that can be reached from outside, fed with what nobody would send
//! on purpose. Those that can't are fuzzed next to their code. See
//! `tests/simulator/tests/simulation/answers` for what storage accounts answer, and
//! `tests/fuzz/src/lib.rs` for how, for how long, and how to repeat a failure.
mod calls;
mod config;
mod names;
mod sockets;

/// Stands for a secret wherever it is put.
const HUSH: &str = "aHVzaGh1c2g";

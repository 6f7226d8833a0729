//! Fuzz tests of the decoders with a public interface. The other decoders are fuzzed next
//! to their code, and the answers of storage accounts are fuzzed in
//! `tests/simulator/tests/simulation/answers`. `tests/fuzz/src/lib.rs` describes the
//! duration of the tests and how to repeat a failure.

mod calls;
mod config;
mod names;
mod sockets;

/// Secret in the inputs. Must not appear in any output.
const SECRET: &str = "aHVzaGh1c2g";

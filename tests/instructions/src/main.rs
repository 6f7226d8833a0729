//! Single operations of the core and of both ends of the session stream, as
//! programs whose instructions `cargo xtask instructions` counts.
//!
//! An operation is run twice: `leasehold-instructions NAME reference` prepares
//! and ends, `leasehold-instructions NAME whole` prepares, repeats the operation
//! and ends. The difference of the two counts, divided by the number of
//! repetitions, is the count of one operation. It contains no start and no end
//! of the process.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]
#![allow(clippy::expect_used, clippy::panic, reason = "a measurement can't go on")]

mod client;
mod core;
mod daemon;
mod product;
mod store;

use std::process::{ExitCode, exit};

/// How often an operation is repeated.
const REPETITIONS: u32 = 1000;

/// What a process executes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The preparation. For the client also the same messages on a bare stream,
    /// so that transport and server do not count.
    Reference,
    /// The preparation and the operation.
    Whole,
}

type Operation = fn(Mode);

/// By name.
const OPERATIONS: &[(&str, Operation)] = &[
    ("core/acquire", core::acquire),
    ("core/release", core::release),
    ("core/keep-alive", core::keep_alive),
    ("core/handoff", core::handoff),
    ("daemon/acquire", daemon::acquire),
    ("daemon/release", daemon::release),
    ("daemon/keep-alive", daemon::keep_alive),
    ("daemon/handoff", daemon::handoff),
    ("client/acquire", client::acquire),
    ("client/release", client::release),
    ("client/keep-alive", client::keep_alive),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, mode) = match arguments[..] {
        ["list"] => {
            OPERATIONS.iter().for_each(|(name, _)| println!("{name} {REPETITIONS}"));
            return ExitCode::SUCCESS;
        }
        [name, "reference"] => (name, Mode::Reference),
        [name, "whole"] => (name, Mode::Whole),
        _ => {
            eprintln!("usage: leasehold-instructions list | NAME reference | NAME whole");
            return ExitCode::from(2);
        }
    };
    let Some((_, operation)) = OPERATIONS.iter().find(|(found, _)| *found == name) else {
        eprintln!("there is no operation {name:?}");
        return ExitCode::from(2);
    };
    operation(mode);
    ExitCode::SUCCESS
}

/// Ends the process where the measurement ends: what would be dropped does not
/// count.
fn finish() -> ! {
    exit(0)
}

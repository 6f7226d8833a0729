//! Single operations of the core and of both ends of the session stream, as
//! programs whose instructions `cargo xtask instructions` counts.
//!
//! An operation is run twice: `leasehold-instructions NAME reference` prepares
//! and ends, `leasehold-instructions NAME whole` prepares, repeats the operation
//! and ends. The difference of the two counts, divided by the number of
//! repetitions, is the count of one operation. It contains no start and no end
//! of the process.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]
#![allow(clippy::expect_used, clippy::panic, reason = "a failure ends the measurement")]

mod client;
mod core;
mod daemon;
mod product;
mod store;

use std::process::{ExitCode, exit};

/// Number of repetitions of most operations.
const REPETITIONS: u32 = 1000;

/// Number of keep-alives: many, because one is short compared with the
/// preparation, whose instruction count varies slightly.
const KEEP_ALIVES: u32 = 10_000;

/// Part of the measurement that a process executes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The preparation. For the client also the same messages on a bare stream,
    /// so that transport and server do not count.
    Reference,
    /// The preparation and the operation.
    Whole,
}

/// Function that repeats an operation and ends the process.
type Operation = fn(Mode);

/// Operations with their names and numbers of repetitions.
const OPERATIONS: &[(&str, u32, Operation)] = &[
    ("core/acquire", REPETITIONS, core::acquire),
    ("core/release", REPETITIONS, core::release),
    ("core/keep-alive", KEEP_ALIVES, core::keep_alive),
    ("core/handoff", REPETITIONS, core::handoff),
    ("daemon/acquire", REPETITIONS, daemon::acquire),
    ("daemon/release", REPETITIONS, daemon::release),
    ("daemon/keep-alive", KEEP_ALIVES, daemon::keep_alive),
    ("daemon/handoff", REPETITIONS, daemon::handoff),
    ("client/acquire", REPETITIONS, client::acquire),
    ("client/release", REPETITIONS, client::release),
    ("client/keep-alive", client::KEEP_ALIVES, client::keep_alive),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, mode) = match arguments[..] {
        ["list"] => {
            for (name, repetitions, _) in OPERATIONS {
                println!("{name} {repetitions}");
            }
            return ExitCode::SUCCESS;
        }
        [name, "reference"] => (name, Mode::Reference),
        [name, "whole"] => (name, Mode::Whole),
        _ => {
            eprintln!("usage: leasehold-instructions list | NAME reference | NAME whole");
            return ExitCode::from(2);
        }
    };
    let Some((.., operation)) = OPERATIONS.iter().find(|(found, ..)| *found == name) else {
        eprintln!("unknown operation {name:?}");
        return ExitCode::from(2);
    };
    operation(mode);
    ExitCode::SUCCESS
}

/// Ends the process at the end of the measurement, so that destructors do not
/// count.
fn finish() -> ! {
    exit(0)
}

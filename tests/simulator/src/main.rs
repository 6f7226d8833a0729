//! Runs seeds, in virtual time, and says what came of them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

mod command;
mod mutants;
mod summary;
mod workers;

use std::{
    env,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

/// Errors of the storage client carry a backtrace if this is not zero, which
/// would take most of the time.
const BACKTRACES: &str = "RUST_LIB_BACKTRACE";

fn main() -> ExitCode {
    if env::var_os(BACKTRACES).is_none()
        && env::var_os("RUST_BACKTRACE").is_some()
        && let Ok(this) = env::current_exe()
    {
        let error = Command::new(this).args(env::args_os().skip(1)).env(BACKTRACES, "0").exec();
        eprintln!("without {BACKTRACES}=0 this is slow: {error}");
    }
    command::run()
}

//! Runs seeds in virtual time and prints the results.

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

/// Environment variable that enables backtraces in errors of the storage
/// client. They would take most of the run time.
const BACKTRACES: &str = "RUST_LIB_BACKTRACE";

fn main() -> ExitCode {
    if env::var_os(BACKTRACES).is_none()
        && env::var_os("RUST_BACKTRACE").is_some()
        && let Ok(this) = env::current_exe()
    {
        let error = Command::new(this).args(env::args_os().skip(1)).env(BACKTRACES, "0").exec();
        eprintln!("can't restart with {BACKTRACES}=0, so this run is slow: {error}");
    }
    command::run()
}

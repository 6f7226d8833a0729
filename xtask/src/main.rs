//! Command `cargo xtask`: the only entry point for the project's checks.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

mod instructions;
mod options;
mod report;
mod run;
mod suite;
mod tool;
mod words;
mod workspace;

use std::process::ExitCode;

use options::{Command, HELP};
use workspace::Workspace;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    match options::parse(std::env::args().skip(1))? {
        Command::Help => {
            println!("{HELP}");
            Ok(true)
        }
        Command::List => {
            print!("{}", suite::table());
            Ok(true)
        }
        Command::Test(options) => suite::run(&options, &Workspace::load()?),
        Command::Instructions { accept } => instructions::run(accept, &Workspace::load()?),
    }
}

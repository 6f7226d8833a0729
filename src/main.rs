//! The `leasehold` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold::cli::main()
}

//! Starting the command, in two steps: a process of this program that stops
//! itself at once, and becomes the command only when it is continued.
//!
//! In between, the watchdog is told of its process group and the terminal is
//! handed to it. So there is no moment at which the command runs and would
//! outlive us, and none at which it reads a terminal that is not its own.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use super::Grant;
use crate::cli::{
    exit::{CANNOT_RUN, Failure, NOT_FOUND},
    output::Output,
    process::{self, Awaited},
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Launch {
    #[arg(long)]
    output: Output,
    /// The process that continues this one
    parent: u32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Launch {
    /// Waits to be continued, and becomes the command.
    pub(in crate::cli) fn run(self) -> ExitCode {
        let output = self.output;
        self.become_command().unwrap_or_else(|failure| failure.report(output))
    }

    fn become_command(self) -> Result<ExitCode, Failure> {
        process::stop_self()?;
        // The system continues a stopped process when its parent dies.
        if process::parent() != self.parent {
            return Ok(ExitCode::FAILURE);
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(ExitCode::FAILURE);
        };
        let error = Command::new(program).args(arguments).exec();
        let code = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        };
        let message = format!("can't run {}: {error}", program.to_string_lossy());
        Err(Failure::new(code, "command", message))
    }
}

/// A command, and what it sees besides its grant.
#[derive(Debug)]
pub(in crate::cli) struct Program<'a> {
    pub(in crate::cli) command: &'a [OsString],
    pub(in crate::cli) environment: &'a [(&'static str, OsString)],
    /// How it is told that it can't be run.
    pub(in crate::cli) output: Output,
}

/// Starts the process that will be the command, as the leader of a process
/// group of its own.
pub(super) fn start(grant: &impl Grant, program: &Program<'_>) -> io::Result<Awaited> {
    program.start(|command| {
        command
            .env("LEASEHOLD_LOCK", grant.name())
            .env("LEASEHOLD_NAMESPACE", grant.namespace())
            .env("LEASEHOLD_TOKEN", grant.token().to_string());
    })
}

impl Program<'_> {
    /// Starts the process that will be this, as the leader of a process group
    /// of its own. It stops itself, and goes on when it is continued.
    pub(in crate::cli) fn start(&self, set: impl FnOnce(&mut Command)) -> io::Result<Awaited> {
        let mut command = Command::new(process::this_program()?);
        command
            .arg0("leasehold")
            .args(["launch", "--output", self.output.name()])
            .arg(std::process::id().to_string())
            .arg("--")
            .args(self.command)
            .process_group(0);
        set(&mut command);
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        Ok(Awaited::new(command.spawn()?.id()))
    }
}

//! Starts the command in two steps: a process of this program stops itself, and
//! executes the command when it is continued.
//!
//! In between, the watchdog receives the process group, and the group gets the
//! terminal. The command therefore never runs without the watchdog, and never reads
//! from a terminal that belongs to another group.

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
    process::{self, TrackedChild},
    trace,
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Launch {
    #[arg(long)]
    output: Output,
    /// Process that continues this one
    parent: u32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Launch {
    /// Stops this process, and executes the command when it is continued.
    pub(in crate::cli) fn run(self) -> ExitCode {
        let output = self.output;
        self.become_command().unwrap_or_else(|failure| failure.report(output))
    }

    fn become_command(self) -> Result<ExitCode, Failure> {
        process::stop_self()?;
        // The system also continues a stopped process when its parent dies.
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

/// Command with its additional environment.
#[derive(Debug)]
pub(in crate::cli) struct Program<'a> {
    pub(in crate::cli) command: &'a [OsString],
    pub(in crate::cli) environment: &'a [(&'static str, OsString)],
    /// Format of the error if the command can't be run.
    pub(in crate::cli) output: Output,
}

/// Starts the stopped process of the command, with the grant in its environment.
pub(super) fn start(grant: &impl Grant, program: &Program<'_>) -> io::Result<TrackedChild> {
    program.start(|command| {
        command
            .env("LEASEHOLD_LOCK", grant.name())
            .env("LEASEHOLD_NAMESPACE", grant.namespace())
            .env("LEASEHOLD_TOKEN", grant.token().to_string())
            .envs(trace::environment());
    })
}

impl Program<'_> {
    /// Starts a process that leads a new process group and stops itself. It executes
    /// the program when it is continued.
    pub(in crate::cli) fn start(
        &self,
        configure: impl FnOnce(&mut Command),
    ) -> io::Result<TrackedChild> {
        let mut command = Command::new(process::this_program()?);
        command
            .arg0("leasehold")
            .args(["launch", "--output", self.output.name()])
            .arg(std::process::id().to_string())
            .arg("--")
            .args(self.command)
            .process_group(0);
        configure(&mut command);
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        Ok(TrackedChild::new(command.spawn()?.id()))
    }
}

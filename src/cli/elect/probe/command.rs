//! A probe that is a command of its own.

use std::{convert::Infallible, ffi::OsString, process::Stdio, str::FromStr};

use tokio::process::Command;

use super::Probe;
use crate::cli::process::{Group, Signal};

/// What `sh -c` is given.
#[derive(Debug, Clone)]
pub(in super::super) struct CommandProbe(String);

impl FromStr for CommandProbe {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl CommandProbe {
    /// With this in its environment.
    pub(in super::super) fn seeing<'a>(
        &'a self,
        environment: &'a [(&'static str, OsString)],
    ) -> SeeingProbe<'a> {
        SeeingProbe { script: &self.0, environment }
    }
}

/// A command, and what it sees.
#[derive(Debug)]
pub(in super::super) struct SeeingProbe<'a> {
    script: &'a str,
    environment: &'a [(&'static str, OsString)],
}

/// Kills what is left of a probe that nobody waits for any more.
struct Unfinished(Option<Group>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            group.signal(Signal::SIGKILL);
        }
    }
}

impl Probe for SeeingProbe<'_> {
    const KIND: &'static str = "command";

    async fn ask(&self) -> Result<(), String> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(self.script)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("can't run sh: {error}"))?;
        let mut unfinished = Unfinished(child.id().and_then(Group::of));
        let ended = child.wait().await.map_err(|error| error.to_string())?;
        // Its id may be another's from now on.
        unfinished.0 = None;
        if ended.success() { Ok(()) } else { Err(ended.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(script: &str) -> Result<(), String> {
        let environment = [("LEASEHOLD_TOKEN", OsString::from("7"))];
        CommandProbe(script.to_owned()).seeing(&environment).ask().await
    }

    #[tokio::test]
    async fn it_is_healthy_if_it_ends_with_0() {
        assert_eq!(ask("test $LEASEHOLD_TOKEN = 7").await, Ok(()));
        assert_eq!(ask("exit 3").await, Err("exit status: 3".to_owned()));
        assert!(ask("kill -9 $$").await.unwrap_err().contains("signal: 9"));
    }
}

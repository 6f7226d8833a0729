//! Command line of `cargo xtask`.

use crate::suite::{self, Level};

pub(crate) const HELP: &str = "\
Runs the project's checks.

Usage:
  cargo xtask test [LEVEL] [OPTIONS]
  cargo xtask instructions [--accept]

Levels:
  quick  daily work: format, lints of the product, unit tests, the integration
         tests on the embedded store, and the tests of the documentation
  ci     all checks that a change must pass (default)
  full   ci with long runs: 100,000 seeds, every mutant by search, 10 minutes of
         injected faults, a minute for each fuzz target

Options of `test`:
  --only PART     run only this part; can be repeated
  --skip PART     leave this part out; can be repeated
  --seconds N     duration of the simulation of random seeds (270)
  --list          list the parts and their levels

`instructions` counts the instructions of single operations under valgrind and
compares them with tests/instructions/counts.txt. It fails if a count increased
by more than 2 %.
  --accept        write the new counts to that file

A part that fails does not stop the others. The exit code is 0 if all parts
passed, 1 if a part failed, and 2 if the command line is invalid. Ctrl-C stops
all processes.

Prerequisites: Rust from rustup, Node 20 or newer with npm. For the instruction
counts valgrind, which is installed with apt-get where that is possible. Rust
components and targets are installed with rustup. Azurite is installed with npm
by the tests that use it.";

/// Duration of the simulation of random seeds.
const DEFAULT_SECONDS: u64 = 270;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    List,
    Test(Options),
    Instructions { accept: bool },
}

/// Options of `cargo xtask test`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) level: Level,
    /// Names of the parts to run; all parts of the level if empty.
    pub(crate) only: Vec<String>,
    /// Names of the parts to leave out.
    pub(crate) skip: Vec<String>,
    /// Duration of the simulation of random seeds.
    pub(crate) seconds: u64,
}

impl Options {
    /// Returns true if a part is selected. `only` also selects parts of a higher
    /// level.
    pub(crate) fn selects(&self, name: &str, levels: &[Level]) -> bool {
        let is_named = |names: &[String]| names.iter().any(|named| named == name);
        let selected =
            if self.only.is_empty() { levels.contains(&self.level) } else { is_named(&self.only) };
        selected && !is_named(&self.skip)
    }
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut arguments = arguments.peekable();
    match arguments.next().as_deref() {
        None | Some("help" | "-h" | "--help") => Ok(Command::Help),
        Some("test") => parse_test(arguments),
        Some("instructions") => parse_instructions(arguments),
        Some(other) => Err(format!("unknown command {other:?}; see cargo xtask --help")),
    }
}

fn parse_test(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut level = None;
    let (mut only, mut skip) = (Vec::new(), Vec::new());
    let mut seconds = DEFAULT_SECONDS;
    while let Some(argument) = arguments.next() {
        let (key, mut inline) = match argument.split_once('=') {
            Some((key, value)) if key.starts_with("--") => (key, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let mut value =
            || inline.take().or_else(|| arguments.next()).ok_or(format!("{key} needs a value"));
        match key {
            "-h" | "--help" => return Ok(Command::Help),
            "--list" => return Ok(Command::List),
            "--only" => only.push(part(value()?)?),
            "--skip" => skip.push(part(value()?)?),
            "--seconds" => {
                seconds =
                    value()?.parse().map_err(|error| format!("--seconds: {error}; see --help"))?;
            }
            name => match Level::from_name(name) {
                Some(named) if level.is_none() => level = Some(named),
                _ => return Err(format!("unexpected argument {name:?}; see cargo xtask --help")),
            },
        }
    }
    Ok(Command::Test(Options { level: level.unwrap_or(Level::Ci), only, skip, seconds }))
}

fn parse_instructions(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut accept = false;
    for argument in arguments {
        match argument.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--accept" => accept = true,
            other => return Err(format!("unexpected argument {other:?}; see cargo xtask --help")),
        }
    }
    Ok(Command::Instructions { accept })
}

fn part(name: String) -> Result<String, String> {
    if suite::PARTS.iter().any(|part| part.name == name) {
        Ok(name)
    } else {
        Err(format!("unknown part {name:?}; `cargo xtask test --list` lists the parts"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn options(line: &str) -> Options {
        match parsed(line) {
            Ok(Command::Test(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn ci_is_default_level() {
        let Options { level, only, skip, seconds } = options("test");
        assert_eq!((level, only, skip, seconds), (Level::Ci, vec![], vec![], DEFAULT_SECONDS));
        assert_eq!(options("test quick").level, Level::Quick);
        assert_eq!(options("test --seconds=9 full").seconds, 9);
    }

    #[test]
    fn only_and_skip_can_be_repeated() {
        let options = options("test --only format --only=lints --skip lints");
        assert_eq!(options.only, ["format", "lints"]);
        assert!(options.selects("format", &[Level::Ci]));
        assert!(options.selects("format", &[Level::Full]), "only reaches beyond the level");
        assert!(!options.selects("lints", &[Level::Ci]), "skip wins");
        assert!(!options.selects("docs", &[Level::Ci]));
    }

    #[test]
    fn level_selects_parts() {
        let options = options("test quick");
        assert!(options.selects("format", &[Level::Quick, Level::Ci]));
        assert!(!options.selects("docs", &[Level::Ci]));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in
            ["tests", "test fast", "test quick ci", "test --only", "test --only x", "test --fast"]
        {
            assert!(parsed(line).is_err(), "{line}");
        }
        assert!(parsed("test --seconds soon").is_err());
        assert!(parsed("instructions now").is_err());
    }

    #[test]
    fn empty_command_line_prints_help() {
        for line in ["", "--help", "help", "test --help", "instructions -h"] {
            assert_eq!(parsed(line), Ok(Command::Help), "{line}");
        }
        assert_eq!(parsed("instructions --accept"), Ok(Command::Instructions { accept: true }));
    }
}

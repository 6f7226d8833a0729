//! Commands: run without standard input, with their output printed at once and
//! searched for the results of tests.

use std::{
    fmt,
    io::{BufRead, BufReader},
    ops::AddAssign,
    path::Path,
    process::{Command, Stdio},
};

/// Command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cmd {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Cmd {
    pub(crate) fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), variables: Vec::new() }
    }

    pub(crate) fn cargo(subcommand: &str) -> Self {
        Self::new("cargo").arg(subcommand)
    }

    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn args<A: Into<String>>(mut self, all: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(all.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((key, value.into()));
        self
    }

    /// Runs the command in a directory, prints its output and counts the tests in it.
    pub(crate) fn run(&self, directory: &Path) -> Result<Tally, Failure> {
        println!("$ {self}");
        let mut command = self.command(directory);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| Failure {
            tally: Tally::default(),
            why: format!("{}: {error}", self.program),
        })?;
        let mut tally = Tally::default();
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line);
                print!("{text}");
                tally += Tally::from_line(&text);
                line.clear();
            }
        }
        match child.wait() {
            Ok(status) if status.success() => Ok(tally),
            Ok(status) => Err(Failure { tally, why: format!("`{self}` failed: {status}") }),
            Err(error) => Err(Failure { tally, why: format!("`{self}`: {error}") }),
        }
    }

    /// Runs the command in a directory and returns its standard output.
    pub(crate) fn output(&self, directory: &Path) -> Result<String, String> {
        let output = self
            .command(directory)
            .output()
            .map_err(|error| format!("can't start {}: {error}", self.program))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{self}` failed: {}\n{}", output.status, error.trim_end()))
        }
    }

    /// Returns true if the command starts and succeeds. Prints nothing.
    pub(crate) fn succeeds(&self) -> bool {
        self.output(Path::new(".")).is_ok()
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(directory).stdin(Stdio::null());
        // `cargo run` sets variables that describe this package. Build scripts that
        // depend on them would run again.
        for (key, _) in std::env::vars_os() {
            if is_of_this_package(&key.to_string_lossy()) {
                command.env_remove(key);
            }
        }
        command.envs(self.variables.iter().map(|(key, value)| (key, value)));
        command
    }
}

fn is_of_this_package(key: &str) -> bool {
    key.starts_with("CARGO_PKG_")
        || ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PRIMARY_PACKAGE"].contains(&key)
        || ["CARGO_BIN_NAME", "CARGO_CRATE_NAME"].contains(&key)
}

/// Formats the command as a shell command line.
impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = |text: &str| {
            if text.contains([' ', '*', '"']) { format!("'{text}'") } else { text.to_owned() }
        };
        for (key, value) in &self.variables {
            write!(f, "{key}={} ", quote(value))?;
        }
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quote(argument)))
    }
}

/// Failed command, with the test results that it printed before.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) tally: Tally,
    pub(crate) why: String,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    pub(crate) const ONE_PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const ONE_FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };
    pub(crate) const ONE_SKIPPED: Self = Self { passed: 0, failed: 0, skipped: 1 };

    /// Reads libtest's summary of a test binary; zero for any other line.
    fn from_line(line: &str) -> Self {
        let mut tally = Self::default();
        let Some((_, counts)) =
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return tally;
        };
        for count in counts.split(';') {
            match count.trim().split_once(' ') {
                Some((number, "passed")) => tally.passed = number.parse().unwrap_or(0),
                Some((number, "failed")) => tally.failed = number.parse().unwrap_or(0),
                Some((number, "ignored")) => tally.skipped = number.parse().unwrap_or(0),
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Tally, Failure> {
        Cmd::new("sh").args(["-c", script]).run(Path::new("."))
    }

    #[test]
    fn summaries_of_test_binaries_are_counted() {
        let line = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; \
                    finished in 0.52s\n";
        assert_eq!(Tally::from_line(line), Tally { passed: 12, failed: 0, skipped: 1 });
        let line = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured";
        assert_eq!(Tally::from_line(line), Tally { passed: 3, failed: 2, skipped: 0 });
        for line in ["", "test result: ", "test a ... ok", "  test result: ok. 1 passed"] {
            assert_eq!(Tally::from_line(line), Tally::default(), "{line:?}");
        }
    }

    #[test]
    fn tally_is_one_line() {
        let mut tally = Tally::ONE_PASSED;
        assert_eq!(tally.to_string(), "1 passed, 0 failed");
        tally += Tally::ONE_FAILED;
        tally += Tally::ONE_SKIPPED;
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn failed_command_keeps_results() {
        let result = "echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored'";
        let failure = shell(&format!("{result}; {result}; exit 101")).unwrap_err();
        assert_eq!(failure.tally, Tally { passed: 6, failed: 4, skipped: 0 });
        assert!(failure.why.contains("101"), "{}", failure.why);
        assert_eq!(shell(result).unwrap().passed, 3);
    }

    #[test]
    fn missing_program_is_a_failure() {
        let missing = Cmd::new("leasehold-no-such-program");
        assert!(missing.run(Path::new(".")).is_err() && !missing.succeeds());
    }

    #[test]
    fn commands_have_no_standard_input() {
        assert_eq!(Cmd::new("cat").output(Path::new(".")), Ok(String::new()));
    }

    #[test]
    fn command_is_printed_as_shell_line() {
        let cmd = Cmd::cargo("doc").arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(cmd.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }
}

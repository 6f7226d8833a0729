//! The command line: one module for each command or group of commands.
//!
//! `serve` and `doctor` access the store, and `demo` starts a daemon; all other
//! commands are clients of a daemon. `lock` and `elect` share `run`, which runs a
//! program under a grant, and `watchdog`, which kills the program if this process dies.

mod bench;
mod configuration;
mod demo;
mod designated;
mod doctor;
mod elect;
mod exit;
mod explain;
mod inspect;
mod leader;
mod lock;
mod lock_output;
mod options;
mod output;
mod palette;
mod peer;
mod process;
mod run;
mod serve;
mod times;
mod top;
mod trace;
mod watchdog;

use std::{ffi::OsString, process::ExitCode};

use anstyle::{AnsiColor, Style};
use clap::{
    ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand,
    builder::styling::Styles,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;
use tokio::runtime::Builder;

use self::{
    exit::{Failure, USAGE},
    options::{Globals, On},
    output::Output,
};
use crate::config::unknown_variables;

/// Distributed locks and leader election with fencing tokens.
///
/// `leasehold serve` runs the daemon. `leasehold lock` holds a lock, and `leasehold elect`
/// leads an election, while a command runs. The other commands inspect locks and elections.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    styles = STYLES,
    after_help = "Commands that talk to a daemon take -e/--endpoint, -n/--namespace and -o/--output, \
before or after the command.

Exit codes:
  0    success
  1    failure without a specific code
  2    `check`: unknown, because the holder's daemon could not be reached
  64   usage error
  65   invalid name, TTL or other value
  69   daemon unreachable or unable to serve the request
  73   `lock`, `elect --once`: the lock or the leadership was lost
  75   `lock`: the lock was not granted in time
  78   `serve`, `doctor`: invalid configuration
  126  `lock`, `elect`: the command can't be run
  127  `lock`, `elect`: the command was not found
`lock` and `elect` otherwise exit as their commands did.

With --output json, standard error has one JSON object per line too:
  {\"error\":{\"kind\":…,\"message\":…,…}}   the failure
  {\"note\":{\"message\":…}}               a warning; the command continues

Colors are used on terminals only. NO_COLOR turns them off, CLICOLOR_FORCE=1 on.

Examples:
  leasehold serve
  leasehold lock nightly-report -- ./report.sh
  leasehold elect scheduler -- ./scheduler
  leasehold ls -A"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Colors of the help texts.
const STYLES: Styles = Styles::styled()
    .header(Style::new().bold())
    .usage(Style::new().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(Style::new())
    .error(AnsiColor::Red.on_default().bold())
    .valid(AnsiColor::Green.on_default())
    .invalid(AnsiColor::Yellow.on_default());

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(serve::Serve),
    /// Check that the store is usable, and print a fix for each failure
    Doctor(doctor::Doctor),
    /// Hold a lock, while a command runs or until interrupted
    Lock(Box<On<lock::Lock>>),
    /// Run a command while leading an election
    Elect(Box<On<elect::Elect>>),
    /// Print the leader of an election
    Leader(On<leader::LeaderArgs>),
    /// Print the leader of an election, and every change
    Observe(On<leader::Observe>),
    /// Ask the leader of an election to step down
    StepDown(On<leader::StepDown>),
    /// List the locks that have a holder or a waiter
    Ls(On<inspect::Ls>),
    /// Print one lock
    Get(On<inspect::Get>),
    /// Explain a lock: holder, waiters, recent events, and why it does not move
    Explain(On<explain::Explain>),
    /// Show the busiest and longest-held locks of a daemon, live
    Top(On<top::Top>),
    /// Print locks, and every change
    Watch(On<inspect::WatchArgs>),
    /// Break a lock: end its grant as an operator
    Break(On<inspect::Break>),
    /// Check whether a token belongs to the current holder of a lock
    Check(On<inspect::Check>),
    /// Show how workers share a lock and elect a leader while faults hit them
    Demo(demo::Demo),
    /// Measure a daemon
    Bench(bench::Bench),
    /// Write shell completions to standard output
    #[command(after_help = "Examples:
  leasehold completions bash > /etc/bash_completion.d/leasehold
  leasehold completions zsh > ~/.zfunc/_leasehold")]
    Completions {
        /// Shell
        shell: Shell,
    },
}

impl Command {
    /// Returns whether the command is a client of a daemon. `serve` and `doctor` report
    /// unknown variables with their configuration.
    const fn uses_daemon(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Doctor(_) | Self::Demo(_) | Self::Completions { .. } => false,
            Self::Bench(bench) => bench.uses_daemon(),
            _ => true,
        }
    }
}

/// Internal commands, with which `lock`, `elect` and `demo` start this program again.
/// They are left out of the help and the completions.
#[derive(Debug, Parser)]
#[command(name = "leasehold")]
enum Internal {
    Watchdog {
        #[arg(long)]
        output: Output,
        #[arg(long, default_value = "the grant")]
        subject: String,
    },
    Launch(run::Launch),
    DemoDaemon(demo::DemoDaemon),
    DemoWorker(demo::DemoWorker),
}

/// Names of the internal commands.
const INTERNAL: [&str; 4] = ["watchdog", "launch", "demo-daemon", "demo-worker"];

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let first = std::env::args_os().nth(1);
    if first.is_some_and(|first| INTERNAL.iter().any(|word| first == *word)) {
        return match Internal::try_parse() {
            Ok(Internal::Watchdog { output, subject }) => {
                watchdog::run(output, &subject).unwrap_or_else(|failure| failure.report(output))
            }
            Ok(Internal::Launch(launch)) => launch.run(),
            Ok(Internal::DemoDaemon(daemon)) => daemon.run(),
            Ok(Internal::DemoWorker(worker)) => worker.run(),
            Err(error) => print_usage(&error),
        };
    }
    let arguments = options::reorder(std::env::args_os());
    let wants_json = wants_json(arguments.iter());
    let runs_command = arguments.get(1).is_some_and(|word| word == "lock" || word == "elect");
    let parsed = command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)))
        .map_err(|error| with_separator_tip(error, runs_command));
    match parsed {
        Ok((cli, matches)) => {
            let output = output_of(&matches);
            if cli.command.uses_daemon() {
                let warnings = unknown_variables(options::variable_names());
                warnings.iter().for_each(|warning| output.note(warning));
            }
            cli.run().unwrap_or_else(|failure| failure.report(output))
        }
        Err(error) if error.use_stderr() && wants_json => {
            let message = error.to_string();
            Failure::new(USAGE, "usage", message.trim_end()).report(Output::Json)
        }
        Err(error) => print_usage(&error),
    }
}

/// Adds the fix to a usage error of `lock` and `elect` about a command without `--`.
fn with_separator_tip(mut error: clap::Error, runs_command: bool) -> clap::Error {
    let is_word = matches!(error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(argument)) if !argument.starts_with('-'));
    if runs_command && is_word && error.kind() == ErrorKind::UnknownArgument {
        let tip = vec!["put \"--\" before the command".into()];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
    }
    error
}

/// Returns the commands with their arguments, options and help texts.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Returns the output format of the given command.
fn output_of(matches: &ArgMatches) -> Output {
    let mut command = matches;
    while let Some((_, inner)) = command.subcommand() {
        command = inner;
    }
    let given = command.try_get_one::<Output>("output").ok().flatten();
    given.copied().unwrap_or(Output::Text)
}

/// Prints the requested help, or the usage error.
fn print_usage(error: &clap::Error) -> ExitCode {
    // A closed pipe does not change the exit code.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
}

impl Cli {
    fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Doctor(doctor) => block_on(doctor.run()),
            Command::Completions { shell } => completions(shell),
            Command::Lock(on) => {
                trace::traced("lock", on.globals.output, on.command.run(&on.globals))
            }
            Command::Elect(on) => {
                trace::traced("elect", on.globals.output, on.command.run(&on.globals))
            }
            Command::Leader(on) => block_on(on.command.run(&on.globals)),
            Command::Observe(on) => block_on(on.command.run(&on.globals)),
            Command::StepDown(on) => block_on(on.command.run(&on.globals)),
            Command::Ls(on) => block_on(on.command.run(&on.globals)),
            Command::Get(on) => block_on(on.command.run(&on.globals)),
            Command::Explain(on) => block_on(on.command.run(&on.globals)),
            Command::Top(on) => block_on(on.command.run(&on.globals)),
            Command::Watch(on) => block_on(on.command.run(&on.globals)),
            Command::Break(on) => block_on(on.command.run(&on.globals)),
            Command::Check(on) => block_on(on.command.run(&on.globals)),
            Command::Demo(demo) => block_on(demo.run()),
            Command::Bench(bench) => block_on(bench.run()),
        }
    }
}

fn block_on(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    Builder::new_current_thread().enable_all().build()?.block_on(command)
}

fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "leasehold", &mut script);
    output::write(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a command line that could not be parsed requests JSON.
fn wants_json<'a>(arguments: impl Iterator<Item = &'a OsString>) -> bool {
    let ours: Vec<&OsString> = arguments.take_while(|argument| *argument != "--").collect();
    let whole = ["--output=json", "-ojson", "-o=json"];
    ours.iter().any(|argument| whole.iter().any(|whole| argument == whole))
        || ours
            .windows(2)
            .any(|pair| (pair[0] == "--output" || pair[0] == "-o") && pair[1] == "json")
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn json_is_recognized_before_the_command_only() {
        let wants =
            |line: &str| wants_json(line.split(' ').map(OsString::from).collect::<Vec<_>>().iter());
        assert!(wants("leasehold ls -o json --no-such-flag"));
        assert!(wants("leasehold ls -ojson --no-such-flag"));
        assert!(wants("leasehold ls --output json --no-such-flag"));
        assert!(wants("leasehold --output=json"));
        assert!(!wants("leasehold lock x --bad -- cmd --output json"));
        assert!(!wants("leasehold ls --output text"));
    }

    #[test]
    fn lock_needs_no_command() {
        for line in ["leasehold lock x", "leasehold lock x -w 1s", "leasehold lock x -w 1s -- true"]
        {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(Cli::try_parse_from(["leasehold", "lock", "x", "--"]).is_ok());
    }

    #[test]
    fn command_without_separator_gets_tip() {
        let tip = |line: &str, runs_command| {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            with_separator_tip(error, runs_command).to_string().contains("put \"--\" before")
        };
        assert!(tip("leasehold lock x true", true));
        assert!(tip("leasehold elect x ./run -v", true));
        assert!(!tip("leasehold lock x --no-such-flag", true));
        assert!(!tip("leasehold get x y", false));
    }

    #[test]
    fn every_setting_is_a_flag() {
        for setting in crate::config::SETTINGS {
            let flag = format!("--{}=value", setting.flag());
            assert!(Cli::try_parse_from(["leasehold", "serve", &flag]).is_ok(), "{flag}");
        }
        assert!(Cli::try_parse_from(["leasehold", "serve", "--reflection", "--check"]).is_ok());
    }

    #[test]
    fn probes_go_together() {
        let line = "leasehold elect x --probe-http http://a/ --probe-grpc a:1 --probe-command true \
                    --probe-interval 1s --probe-threshold 1 --progress-timeout 1s -- true";
        assert!(Cli::try_parse_from(line.split(' ')).is_ok());
    }

    #[test]
    fn names_with_hyphen_follow_separator() {
        for line in [
            "leasehold break --endpoint http://a:1 -n b --reason R -- -x",
            "leasehold step-down --endpoint http://a:1 -n b --reason R -- -x",
            "leasehold explain -n b -e http://a:1 -- -x",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in [
            "leasehold",
            "leasehold lock",
            "leasehold lock -- true",
            "leasehold completions bash --endpoint http://a:1",
            "leasehold completions bash -o json",
            "leasehold demo --rounds 0",
            "leasehold top --interval 1ms",
            "leasehold explain",
            "leasehold demo --endpoint http://a:1",
            "leasehold serve --endpoint http://a:1",
            "leasehold serve --namespace a",
            "leasehold doctor -n a",
            "leasehold ls --limit 0",
            "leasehold ls -A -n a",
            "leasehold lock x --table orders -- true",
            "leasehold lock --table orders --blob a/b -- true",
            "leasehold lock x --account acme -- true",
            "leasehold elect --queue jobs --partition p -- true",
            "leasehold lock x --wait 1s --no-wait -- true",
            "leasehold lock x --wait soon -- true",
            "leasehold lock x --wait 5 -- true",
            "leasehold lock x --label novalue -- true",
            "leasehold elect x",
            "leasehold elect x --once --restart -- true",
            "leasehold elect x --probe-interval 1s -- true",
            "leasehold elect x --probe-command true --probe-interval 0s -- true",
            "leasehold elect x --probe-command true --probe-threshold 0 -- true",
            "leasehold elect x --probe-http https://localhost/ -- true",
            "leasehold elect x --probe-http localhost:80 -- true",
            "leasehold elect x --probe-grpc unix:/run/x -- true",
            "leasehold elect x --progress-timeout 0s -- true",
            "leasehold step-down x",
            "leasehold watch x --prefix y",
            "leasehold break x",
            "leasehold check x notanumber",
            "leasehold check x 007",
            "leasehold check x 9007199254740992",
            "leasehold ls --output xml",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    const WORDS: &[&str] = &[
        "serve",
        "doctor",
        "lock",
        "elect",
        "leader",
        "observe",
        "step-down",
        "ls",
        "get",
        "watch",
        "break",
        "check",
        "explain",
        "top",
        "demo",
        "bench",
        "completions",
        "--",
        "--output",
        "-o",
        "-n",
        "-A",
        "--limit",
        "json",
        "--wait",
        "--ttl",
        "--label",
        "a=b",
        "--probe-http",
        "http://[::1]:80/x?y#z",
        "--probe-grpc",
        "--timeout",
        "--reason",
        "--value",
        "--prefix",
        "--help",
        "--version",
        "\n",
        "=",
        "10s",
        "1h 5m",
        "18446744073709551615",
        "9007199254740992",
        "-1",
        "584554531y",
        "1e9s",
        "0.1ns",
    ];

    #[test]
    fn every_command_line_is_accepted_or_refused_fuzzed() {
        use std::os::unix::ffi::OsStringExt;
        Fuzz::new("command-line").words(WORDS).max_bytes(400).run(|input| {
            // One argument per line.
            let words = input.split(|byte| *byte == b'\n').take(12);
            let words = words.map(|word| OsString::from_vec(word.to_vec()));
            let words: Vec<OsString> = std::iter::once("leasehold".into()).chain(words).collect();
            let words = options::reorder(words);
            wants_json(words.iter());
            _ = Internal::try_parse_from(&words);
            match Cli::try_parse_from(&words) {
                Ok(cli) => {
                    let command = format!("{:?}", cli.command);
                    command.split(['(', ' ']).next().unwrap_or_default().to_owned()
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    format!("{:?}", error.kind())
                }
            }
        });
    }
}

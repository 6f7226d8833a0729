//! The command line.

mod bench;
mod configuration;
mod designated;
mod doctor;
mod elect;
mod election;
mod exit;
mod keeper;
mod lock;
mod look;
mod output;
mod peer;
mod process;
mod run;
mod serve;
mod settings;
mod show;

use std::{ffi::OsString, process::ExitCode};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use leasehold_client::{Client, ClientBuilder};
use tokio::runtime::Builder;

use self::{
    exit::{Failure, USAGE},
    output::Output,
};

/// Named locks and elected leaders, with fencing tokens.
///
/// `leasehold serve` runs the daemon. `leasehold lock` runs a command while it
/// holds a lock, `leasehold elect` runs one whenever it leads an election. The
/// other commands look at locks and elections.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    after_help = "Exit codes:
  0    done
  1    failed
  64   the command line is wrong
  65   a name, a ttl or the like is not acceptable; the message names the field and its limit
  69   the daemon can't be reached, or can't serve this now
  73   `lock`, `elect --once`: the lock or the leadership was lost while the command ran
  75   `lock`: the lock was not granted in time
  78   `serve`, `doctor`: the configuration has mistakes
`lock` and `elect` otherwise end as their commands did.

With --output json, standard error has one JSON object per line too:
  {\"error\":{\"kind\":…,\"message\":…,…}}   why it failed
  {\"note\":{\"message\":…}}               a warning; it goes on

Examples:
  leasehold serve
  leasehold lock nightly-report -- ./report.sh
  leasehold elect scheduler -- ./scheduler
  leasehold ls"
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// What all commands that talk to a daemon need to know.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
struct Globals {
    /// The daemon: http://HOST:PORT or unix:/PATH
    #[arg(
        long,
        global = true,
        value_name = "ENDPOINT",
        env = "LEASEHOLD_ENDPOINT",
        default_value = "http://127.0.0.1:7420"
    )]
    endpoint: String,
    /// The namespace of the locks
    #[arg(
        long,
        global = true,
        value_name = "NAMESPACE",
        env = "LEASEHOLD_NAMESPACE",
        default_value = "default"
    )]
    namespace: String,
    /// For people, or one JSON object per line
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Globals {
    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.endpoint).namespace(&self.namespace)
    }

    /// For looking only: no session is opened.
    async fn connect(&self) -> Result<Client, Failure> {
        Ok(self.builder().connect().await?)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(serve::Serve),
    /// Say whether the store can be used, and what to do about it
    Doctor(doctor::Doctor),
    /// Run a command while holding a lock
    Lock(Box<lock::Lock>),
    /// Run a command while leading an election
    Elect(Box<elect::Elect>),
    /// Say who leads an election
    Leader(election::LeaderArgs),
    /// Show who leads an election, and every change
    Observe(election::Observe),
    /// Ask the leader of an election to hand over
    StepDown(election::StepDown),
    /// List the locks that are held or waited for
    Ls(look::Ls),
    /// Show one lock
    Get(look::Get),
    /// Show locks, and every change
    Watch(look::WatchArgs),
    /// Take a lock from its holder
    Break(look::Break),
    /// Say whether a token is that of the lock's present holder
    Check(look::Check),
    /// Measure a daemon
    Bench(bench::Bench),
    /// Write shell completions to standard output
    #[command(after_help = "Examples:
  leasehold completions bash > /etc/bash_completion.d/leasehold
  leasehold completions zsh > ~/.zfunc/_leasehold")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// How `lock` and `elect` call this program again. Not for people, so not in their help
/// and completions.
#[derive(Debug, Parser)]
#[command(name = "leasehold")]
enum Internal {
    Keeper {
        #[arg(long)]
        output: Output,
    },
    Launch(run::Launch),
}

/// Runs the program that the arguments of this process ask for.
#[must_use]
pub fn main() -> ExitCode {
    if matches!(std::env::args_os().nth(1), Some(word) if word == "keeper" || word == "launch") {
        return match Internal::try_parse() {
            Ok(Internal::Keeper { output }) => {
                keeper::run(output).unwrap_or_else(|failure| failure.report(output))
            }
            Ok(Internal::Launch(launch)) => launch.run(),
            Err(error) => complain(&error),
        };
    }
    let parsed = Cli::command()
        .try_get_matches()
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    match parsed {
        Ok((cli, matches)) => {
            let output = cli.globals.output;
            cli.run(&matches).unwrap_or_else(|failure| failure.report(output))
        }
        Err(error) if error.use_stderr() && wants_json(std::env::args_os()) => {
            let message = error.to_string();
            Failure::new(USAGE, "usage", message.trim_end()).report(Output::Json)
        }
        Err(error) => complain(&error),
    }
}

/// Shows the help that was asked for, or what is wrong.
fn complain(error: &clap::Error) -> ExitCode {
    // That nobody reads it is no failure of its own.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
}

impl Cli {
    fn run(self, matches: &ArgMatches) -> Result<ExitCode, Failure> {
        let globals = self.globals;
        let given = matches.subcommand().map_or(matches, |(_, given)| given);
        match self.command {
            Command::Serve(serve) => serve.run(given, globals.output),
            Command::Doctor(doctor) => block_on(doctor.run(given, globals.output)),
            Command::Completions { shell } => completions(shell),
            Command::Lock(lock) => block_on(lock.run(&globals)),
            Command::Elect(elect) => block_on(elect.run(&globals)),
            Command::Leader(leader) => block_on(leader.run(&globals)),
            Command::Observe(observe) => block_on(observe.run(&globals)),
            Command::StepDown(step_down) => block_on(step_down.run(&globals)),
            Command::Ls(ls) => block_on(ls.run(&globals)),
            Command::Get(get) => block_on(get.run(&globals)),
            Command::Watch(watch) => block_on(watch.run(&globals)),
            Command::Break(broken) => block_on(broken.run(&globals)),
            Command::Check(check) => block_on(check.run(&globals)),
            Command::Bench(bench) => block_on(bench.run(&globals)),
        }
    }
}

fn block_on(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    Builder::new_current_thread().enable_all().build()?.block_on(command)
}

fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    output::write(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// What was asked for on a command line that could not be understood.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let ours: Vec<OsString> = arguments.take_while(|argument| argument != "--").collect();
    ours.iter().any(|argument| argument == "--output=json")
        || ours.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json")
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn json_is_recognised_before_the_command_only() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        assert!(wants("leasehold ls --output json --no-such-flag"));
        assert!(wants("leasehold --output=json"));
        assert!(!wants("leasehold lock x --bad -- cmd --output json"));
        assert!(!wants("leasehold ls --output text"));
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
                    --probe-interval 1s --probe-threshold 1 --progress-within 1s -- true";
        assert!(Cli::try_parse_from(line.split(' ')).is_ok());
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in [
            "leasehold",
            "leasehold lock x",
            "leasehold lock -- true",
            "leasehold lock x --table orders -- true",
            "leasehold lock --table orders --blob a/b -- true",
            "leasehold lock x --account acme -- true",
            "leasehold elect --queue jobs --partition p -- true",
            "leasehold lock x --wait 1s --no-wait -- true",
            "leasehold lock x --wait soon -- true",
            "leasehold lock x --label novalue -- true",
            "leasehold elect x",
            "leasehold elect x --once --restart -- true",
            "leasehold elect x --probe-interval 1s -- true",
            "leasehold elect x --probe-command true --probe-interval 0s -- true",
            "leasehold elect x --probe-command true --probe-threshold 0 -- true",
            "leasehold elect x --probe-http https://localhost/ -- true",
            "leasehold elect x --probe-http localhost:80 -- true",
            "leasehold elect x --probe-grpc unix:/run/x -- true",
            "leasehold elect x --progress-within 0s -- true",
            "leasehold step-down x",
            "leasehold watch x --prefix y",
            "leasehold break x",
            "leasehold check x notanumber",
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
        "bench",
        "completions",
        "--",
        "--output",
        "json",
        "--wait",
        "--ttl",
        "--label",
        "a=b",
        "--probe-http",
        "http://[::1]:80/x?y#z",
        "--probe-grpc",
        "--within",
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
    fn every_command_line_is_taken_or_refused_fuzzed() {
        use std::os::unix::ffi::OsStringExt;
        Fuzz::new("command-line").words(WORDS).longest(400).run(|input| {
            // One argument on each line.
            let words = input.split(|byte| *byte == b'\n').take(12);
            let words = words.map(|word| OsString::from_vec(word.to_vec()));
            let words: Vec<OsString> = std::iter::once("leasehold".into()).chain(words).collect();
            wants_json(words.iter().cloned());
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

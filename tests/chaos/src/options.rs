//! Command line of `leasehold-chaos`.

use std::{env, time::Duration};

const HELP: &str = "\
Runs daemons and clients as processes, injects faults of networks, storage and
operators, and checks the recorded history.

  --seed N       seed of the schedule [default: 1; env: LEASEHOLD_CHAOS_SEED]
  --minutes N    approximate duration of the faults [default: 0.53]
  --keep         keep recordings and logs even if the run succeeds
  --plan         only print the schedule
  --without-fence
                 make the fenced resources accept any token; the run must fail";

/// Environment variable for the seed, for runs without arguments.
const SEED: &str = "LEASEHOLD_CHAOS_SEED";

/// Default duration of the faults: with start and recovery, a run takes about a
/// minute.
const DEFAULT_DURATION: Duration = Duration::from_secs(32);

/// Task of a command line.
pub(crate) enum Task {
    Run(Options),
    /// Print this and succeed.
    Print(String),
    /// Print this and fail.
    UsageError(String),
}

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) keep: bool,
    pub(crate) only_plan: bool,
    /// True if fenced resources check tokens. Otherwise, a run must fail.
    pub(crate) fence: bool,
}

impl Options {
    /// Returns the command that repeats the run.
    pub(crate) fn command(&self) -> String {
        let program = env::current_exe()
            .map_or_else(|_| "leasehold-chaos".to_owned(), |program| program.display().to_string());
        let fence = if self.fence { "" } else { " --without-fence" };
        let (seed, minutes) = (self.seed, self.length.as_secs_f64() / 60.0);
        format!("{program} --seed {seed} --minutes {minutes}{fence}")
    }
}

pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Task {
    let mut options =
        Options { seed: 1, length: DEFAULT_DURATION, keep: false, only_plan: false, fence: true };
    if let Ok(seed) = env::var(SEED) {
        match seed.parse() {
            Ok(seed) => options.seed = seed,
            Err(error) => return Task::UsageError(format!("{SEED} must be a number: {error}")),
        }
    }
    while let Some(argument) = arguments.next() {
        let (key, joined) = match argument.split_once('=') {
            Some((key, value)) if key.starts_with("--") => (key.to_owned(), Some(value.to_owned())),
            _ => (argument, None),
        };
        let mut value = || joined.clone().or_else(|| arguments.next()).unwrap_or_default();
        match key.as_str() {
            "--seed" => match value().parse() {
                Ok(seed) => options.seed = seed,
                Err(error) => return Task::UsageError(format!("--seed needs a number: {error}")),
            },
            "--minutes" => match value().parse() {
                Ok(minutes) if (0.2..=600.0).contains(&minutes) => {
                    options.length = Duration::from_secs_f64(60.0 * minutes);
                }
                _ => {
                    return Task::UsageError("--minutes needs a number from 0.2 to 600".to_owned());
                }
            },
            "--keep" => options.keep = true,
            "--plan" => options.only_plan = true,
            "--without-fence" => options.fence = false,
            "--help" | "-h" => return Task::Print(HELP.to_owned()),
            other => return Task::UsageError(format!("unknown argument {other:?}; see --help")),
        }
    }
    Task::Run(options)
}

//! The command line.

use std::{env, time::Duration};

const HELP: &str = "\
Runs daemons and clients as processes, does to them what networks, storages and
operators do, and checks what the clients saw.

  --seed N       which schedule of faults; the same number, the same schedule (1,
                 or what LEASEHOLD_CHAOS_SEED says)
  --minutes N    for about how long faults are made (0.53)
  --keep         keep the histories and logs also if all is well
  --plan         only print the schedule
  --without-fence
                 the fenced resources accept any token: to see that it is found";

/// Chooses the seed where arguments can't be given.
const SEED: &str = "LEASEHOLD_CHAOS_SEED";

/// How long faults are made if nothing is said: with start and healing, about a
/// minute.
const SHORT: Duration = Duration::from_secs(32);

/// What to do.
pub(crate) enum Task {
    Run(Options),
    /// Print this and end well.
    Say(String),
    /// Print this and fail.
    Refuse(String),
}

/// How a run is to be.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) keep: bool,
    pub(crate) only_plan: bool,
    /// Whether what is called fenced looks at tokens. If not, a run must fail.
    pub(crate) fence: bool,
}

impl Options {
    /// The command that does the same again.
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
        Options { seed: 1, length: SHORT, keep: false, only_plan: false, fence: true };
    if let Ok(seed) = env::var(SEED) {
        match seed.parse() {
            Ok(seed) => options.seed = seed,
            Err(error) => return Task::Refuse(format!("{SEED} is to be a number: {error}")),
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
                Err(error) => return Task::Refuse(format!("--seed needs a number: {error}")),
            },
            "--minutes" => match value().parse() {
                Ok(minutes) if (0.2..=600.0).contains(&minutes) => {
                    options.length = Duration::from_secs_f64(60.0 * minutes);
                }
                _ => return Task::Refuse("--minutes needs a number from 0.2 to 600".to_owned()),
            },
            "--keep" => options.keep = true,
            "--plan" => options.only_plan = true,
            "--without-fence" => options.fence = false,
            "--help" | "-h" => return Task::Say(HELP.to_owned()),
            other => return Task::Refuse(format!("unknown argument {other:?}; see --help")),
        }
    }
    Task::Run(options)
}

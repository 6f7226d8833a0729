//! Real processes under real faults. Daemons and clients are killed, paused and
//! cut off, their storage fails in many ways, and an operator breaks locks and
//! deletes blobs, by a schedule derived from a seed. The recorded history is
//! checked against Leasehold's guarantees, and the protected resources against
//! what was written to them.
//!
//! ```text
//! cargo build --release -p leasehold -p leasehold-chaos
//! target/release/leasehold-chaos                                 about a minute
//! target/release/leasehold-chaos --minutes 10 --seed 7
//! target/release/leasehold-chaos --without-fence                 must fail
//! ```
//!
//! The daemon is the program `leasehold` in the directory of this program.
//!
//! The schedule is derived from the seed, which is printed: 1, unless `--seed`
//! or `LEASEHOLD_CHAOS_SEED` sets another.
//!
//! `plan` creates the schedule, `world` has the processes and links, `inject`
//! injects the faults, and `recover` checks the recovery; `client` runs in the
//! client processes; `history` merges their recordings, and `report` prints the
//! results. `watchdog` ends all processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

mod client;
mod clients;
mod daemons;
mod fault;
mod history;
mod inject;
mod link;
mod locks;
mod options;
mod plan;
mod record;
mod recover;
mod report;
mod resource;
mod run;
mod watchdog;
mod world;

use std::{env, process::ExitCode};

use options::Task;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == clients::SUBCOMMAND).is_some() {
        let config = arguments.next().expect("the configuration of the clients");
        client::run(&serde_json::from_str(&config).unwrap());
        return ExitCode::SUCCESS;
    }
    match options::read(arguments) {
        Task::Run(options) if options.only_plan => {
            println!("{}", plan::Plan::new(&options));
            ExitCode::SUCCESS
        }
        Task::Run(options) => run::run(&options),
        Task::Print(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Task::UsageError(text) => {
            eprintln!("{text}");
            ExitCode::from(64)
        }
    }
}

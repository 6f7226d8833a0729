//! Real processes under real faults: daemons and clients are killed, stopped
//! and cut off, their storage fails in every way that it has, and an operator
//! meddles, by a schedule that follows from a seed. What the clients saw is
//! checked against what Leasehold guarantees, and what the locks protect against
//! what was written to it.
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
//! The schedule follows from the seed, which is printed: 1, unless `--seed` or
//! `LEASEHOLD_CHAOS_SEED` says something else.
//!
//! `plan` says what will be done, `world` has what it is done to, `inject` does
//! it, `recover` sees to it that all goes on afterwards; `client` is what runs in
//! the processes of clients; `history` puts their pages together, and `report`
//! says what came of it. `watchdog` leaves nothing running.

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
        let orders = arguments.next().expect("what the clients are to do");
        client::run(&serde_json::from_str(&orders).unwrap());
        return ExitCode::SUCCESS;
    }
    match options::read(arguments) {
        Task::Run(options) if options.only_plan => {
            println!("{}", plan::Plan::new(&options));
            ExitCode::SUCCESS
        }
        Task::Run(options) => run::run(&options),
        Task::Say(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Task::Refuse(text) => {
            eprintln!("{text}");
            ExitCode::from(64)
        }
    }
}

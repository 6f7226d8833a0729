//! Command line of `leasehold-sim`.

use std::{fs::File, io::BufWriter, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use leasehold_simulator::{broken::Broken, run::traced};

use crate::{
    mutants,
    summary::Summary,
    workers::{self, Limit},
};

/// Simulates daemons, clients and a storage account, and checks the history.
///
/// Each seed is a separate simulation: up to three daemons, five clients and
/// three locks on a storage account, with minutes of faults and then a calm
/// phase. The code under test is the product itself; time, network and storage
/// are simulated. The same seed produces the same history.
///
///     leasehold-sim --seeds 100000        many seeds
///     leasehold-sim --seed 4711           one seed, in full
///     leasehold-sim --mutant all          check that broken rules are found
#[derive(Parser, Debug)]
#[command(name = "leasehold-sim", version, verbatim_doc_comment)]
struct Arguments {
    /// Number of seeds.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// First seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// Run only this seed, twice, and print its details
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Break a safety rule, for example 3a, and search for the first seed that
    /// detects it; `all` does so for each rule in turn
    #[arg(long, value_name = "RULE")]
    mutant: Option<String>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Number of threads [default: number of processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// With --seed: print each step
    #[arg(long, requires = "seed")]
    trace: bool,
    /// With --seed: write the history to this file, one line per entry
    #[arg(long, value_name = "FILE", requires = "seed")]
    history: Option<PathBuf>,
}

pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let limit = Limit {
        from: arguments.from,
        seeds: arguments.seeds,
        time: arguments.seconds.map(Duration::from_secs),
        threads: arguments.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        }),
    };
    match (&arguments.mutant, arguments.seed) {
        (Some(key), None) if key == "all" => mutants::table(&Broken::all(), &limit),
        (Some(key), seed) => match Broken::from_key(key) {
            Some(mutant) => match seed {
                Some(seed) => run_one(seed, Some(mutant), arguments.history, arguments.trace),
                None => mutants::table(&[mutant], &limit),
            },
            None => {
                eprintln!("unknown mutant {key:?}; known mutants: {}", mutants::keys());
                ExitCode::from(2)
            }
        },
        (None, Some(seed)) => run_one(seed, None, arguments.history, arguments.trace),
        (None, None) => run_many(&limit),
    }
}

/// Runs one seed twice and prints its details.
fn run_one(seed: u64, mutant: Option<Broken>, history: Option<PathBuf>, trace: bool) -> ExitCode {
    let (first, second) =
        (traced(seed, mutant, trace), leasehold_simulator::run::run(seed, mutant));
    let mut summary = Summary::default();
    summary.add(&first);
    println!("{summary}");
    for violation in &first.violations {
        println!("\n{violation}");
    }
    if let Some(path) = history {
        let written = File::create(&path)
            .and_then(|file| leasehold_checker::write(&first.history, BufWriter::new(file)));
        if let Err(error) = written {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    if first.hash != second.hash {
        println!("\nNOT REPEATABLE: trace {:016x}, then {:016x}", first.hash, second.hash);
        return ExitCode::FAILURE;
    }
    println!("\ntrace {:016x}, twice", first.hash);
    if first.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs many seeds and prints a summary.
fn run_many(limit: &Limit) -> ExitCode {
    let mut summary = Summary::default();
    let mut repeated = 0_u64;
    let mut different = Vec::new();
    workers::run(limit, None, |run| {
        if !run.violations.is_empty() {
            println!("\nseed {}:\n{}", run.seed, run.violations[0]);
        }
        // Repeat some seeds to check determinism.
        if run.seed % 500 == 0 {
            repeated += 1;
            if leasehold_simulator::run::run(run.seed, None).hash != run.hash {
                different.push(run.seed);
            }
        }
        summary.add(&run);
        true
    });
    println!("{summary}");
    println!("repeated {repeated} seeds: {} had a different trace {different:?}", different.len());
    if summary.violations() == 0 && different.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

//! Broken safety rules: how many seeds it takes until they are found out.

use std::process::ExitCode;

use leasehold_simulator::broken::Broken;

use crate::workers::{self, Limit};

/// What they are called.
pub(crate) fn keys() -> String {
    let keys: Vec<_> = Broken::all().into_iter().map(Broken::key).collect();
    keys.join(", ")
}

/// Looks for each in turn, and prints a table.
pub(crate) fn table(mutants: &[Broken], limit: &Limit) -> ExitCode {
    println!("| rule | mutant | what is broken | seeds until found | found as |");
    println!("|---|---|---|---|---|");
    let mut survivors = 0;
    for mutant in mutants {
        // In the order of the seeds, so that the figure is the same each time.
        let mut found: Option<(u64, String)> = None;
        let one_by_one = Limit { threads: limit.threads, ..limit.clone() };
        workers::run(&one_by_one, Some(*mutant), |run| {
            if let Some(violation) = run.violations.first()
                && found.as_ref().is_none_or(|(seed, _)| run.seed < *seed)
            {
                found = Some((run.seed, format!("{:?}", violation.kind)));
            }
            found.is_none()
        });
        let (rule, key, what) = (mutant.rule(), mutant.key(), mutant.what());
        match found {
            Some((seed, kind)) => {
                let count = seed - limit.from + 1;
                println!("| {rule} | {key} | {what} | {count} | {kind} |");
            }
            None => {
                survivors += 1;
                println!("| {rule} | {key} | {what} | **not found** | |");
            }
        }
    }
    if survivors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

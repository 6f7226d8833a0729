//! Search for the first seed that detects each mutant.

use std::process::ExitCode;

use leasehold_simulator::broken::Broken;

use crate::workers::{self, Limit};

/// Returns the keys of all mutants.
pub(crate) fn keys() -> String {
    let keys: Vec<_> = Broken::all().into_iter().map(Broken::key).collect();
    keys.join(", ")
}

/// Searches for each mutant in turn, and prints a table.
pub(crate) fn table(mutants: &[Broken], limit: &Limit) -> ExitCode {
    println!("| Rule | Mutant | Defect | Seeds until found | Found as |");
    println!("|---|---|---|---|---|");
    let mut survivors = 0;
    for mutant in mutants {
        // Take the lowest seed, so that the result is deterministic.
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

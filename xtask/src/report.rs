//! Table at the end of a run.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use crate::run::Tally;

/// Target duration of all checks of `ci`, without a build cache, on two cores.
const TARGET: Duration = Duration::from_secs(50 * 60);

/// Result of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// First failure.
    Failed(String),
    /// Reason for which it did not run.
    Skipped(String),
}

/// Completed part of a run.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    /// Number of tests in the part. A part without tests counts as one.
    pub(crate) tally: Tally,
}

/// Completed parts, in their order.
#[derive(Debug, Default)]
pub(crate) struct Report(pub(crate) Vec<Entry>);

impl Report {
    pub(crate) fn has_passed(&self) -> bool {
        self.0.iter().all(|entry| !matches!(entry.outcome, Outcome::Failed(_)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tally = Tally::default();
        let mut took = Duration::ZERO;
        writeln!(f, "{:<16}{:<9}{:>8}{:>8}", "part", "result", "minutes", "tests")?;
        let mut notes = String::new();
        for entry in &self.0 {
            let (result, note) = match &entry.outcome {
                Outcome::Passed => ("passed", None),
                Outcome::Failed(why) => ("FAILED", Some(why)),
                Outcome::Skipped(why) => ("skipped", Some(why)),
            };
            let Entry { name, tally: Tally { passed, failed, .. }, .. } = entry;
            let tests = passed + failed;
            writeln!(f, "{name:<16}{result:<9}{:>8}{tests:>8}", minutes(entry.took))?;
            if let Some(note) = note {
                writeln!(notes, "{name}: {note}")?;
            }
            tally += entry.tally;
            took += entry.took;
        }
        writeln!(
            f,
            "{:<16}{:<9}{:>8}{:>8}   target for ci: {} minutes, cold, on two cores",
            "total",
            "",
            minutes(took),
            tally.passed + tally.failed,
            TARGET.as_secs() / 60,
        )?;
        if !notes.is_empty() {
            write!(f, "\n{notes}")?;
        }
        write!(f, "\n{tally}")
    }
}

fn minutes(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &'static str, outcome: Outcome, seconds: u64, tally: Tally) -> Entry {
        Entry { name, outcome, took: Duration::from_secs(seconds), tally }
    }

    #[test]
    fn report_ends_with_numbers_of_tests() {
        let failed = Outcome::Failed("`cargo test` failed".to_owned());
        let skipped = Outcome::Skipped("cargo-deny is not installed".to_owned());
        let report = Report(vec![
            entry("format", Outcome::Passed, 3, Tally::ONE_PASSED),
            entry("tests", failed, 90, Tally { passed: 40, failed: 2, skipped: 1 }),
            entry("dependencies", skipped, 0, Tally::ONE_SKIPPED),
        ]);
        let text = report.to_string();
        assert_eq!(text.lines().last(), Some("41 passed, 2 failed, 2 skipped"), "{text}");
        assert!(text.contains("tests           FAILED        1.5      42"), "{text}");
        assert!(text.contains("total                         1.6      43   target"), "{text}");
        assert!(text.contains("dependencies: cargo-deny is not installed"), "{text}");
        assert!(!report.has_passed());
    }

    #[test]
    fn skipped_part_is_not_a_failure() {
        let skipped = Outcome::Skipped("not here".to_owned());
        assert!(Report(vec![entry("chaos", skipped, 0, Tally::ONE_SKIPPED)]).has_passed());
        assert_eq!(Report::default().to_string().lines().last(), Some("0 passed, 0 failed"));
    }
}

//! File of stored counts, and their comparison with new counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

/// Maximum accepted increase, in percent.
const TOLERANCE_PERCENT: u64 = 2;

const HEAD: &str = "\
# Instructions per operation. Compared by `cargo xtask instructions`, written by
# `cargo xtask instructions --accept`.
";
const TOOLS: &str = "# with: ";

/// Instructions by operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Versions of compiler, valgrind and C library.
    pub(super) tools: String,
    pub(super) counts: BTreeMap<String, u64>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}{TOOLS}{}", self.tools)?;
        self.counts.iter().try_for_each(|(name, count)| writeln!(f, "{name} {count}"))
    }
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut counts = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(tools) = line.strip_prefix(TOOLS) {
                counts.tools = tools.to_owned();
            } else if !line.starts_with('#') {
                let (name, count) =
                    line.split_once(' ').ok_or_else(|| format!("not a count: {line:?}"))?;
                let count = count.parse().map_err(|error| format!("{line:?}: {error}"))?;
                counts.counts.insert(name.to_owned(), count);
            }
        }
        Ok(counts)
    }
}

/// Returns the total of a cachegrind profile.
pub(super) fn total(profile: &str) -> Option<u64> {
    let summary = profile.lines().find_map(|line| line.strip_prefix("summary:"))?;
    summary.split_whitespace().next()?.parse().ok()
}

/// Change of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Within,
    Less,
    More,
    /// No stored count.
    New,
    /// Not measured.
    Gone,
}

#[derive(Debug)]
struct Row {
    name: String,
    kept: Option<u64>,
    measured: Option<u64>,
    change: Change,
}

/// Comparison of stored and measured counts.
#[derive(Debug)]
pub(super) struct Comparison {
    rows: Vec<Row>,
    /// Versions of the stored and of the measured counts, if they differ.
    tools: Option<(String, String)>,
}

impl Comparison {
    pub(super) fn new(kept: &Counts, measured: &Counts) -> Self {
        let names: BTreeSet<_> = kept.counts.keys().chain(measured.counts.keys()).collect();
        let row = |name: &String| {
            let (old, new) = (kept.counts.get(name).copied(), measured.counts.get(name).copied());
            Row { name: name.clone(), kept: old, measured: new, change: change(old, new) }
        };
        let tools =
            (kept.tools != measured.tools).then(|| (kept.tools.clone(), measured.tools.clone()));
        Self { rows: names.into_iter().map(row).collect(), tools }
    }

    /// Returns false if an operation needs more instructions, has no stored count,
    /// or was not measured.
    pub(super) fn has_passed(&self) -> bool {
        self.rows.iter().all(|row| matches!(row.change, Change::Within | Change::Less))
    }
}

fn change(kept: Option<u64>, measured: Option<u64>) -> Change {
    let (Some(kept), Some(measured)) = (kept, measured) else {
        return if kept.is_none() { Change::New } else { Change::Gone };
    };
    if 100 * measured > (100 + TOLERANCE_PERCENT) * kept {
        Change::More
    } else if 100 * measured < (100 - TOLERANCE_PERCENT) * kept {
        Change::Less
    } else {
        Change::Within
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20}{:>10}{:>10}{:>9}", "operation", "stored", "now", "ratio")?;
        for row in &self.rows {
            let cell = |count: Option<u64>| count.map_or("-".to_owned(), |it| it.to_string());
            let ratio = match (row.kept, row.measured) {
                (Some(kept), Some(measured)) => format!("{:.4}", measured as f64 / kept as f64),
                _ => "-".to_owned(),
            };
            let note = match row.change {
                Change::Within => "",
                Change::Less => "  less: store it with --accept",
                Change::More => "  MORE",
                Change::New => "  NEW: no stored count",
                Change::Gone => "  GONE: not measured",
            };
            let (kept, measured) = (cell(row.kept), cell(row.measured));
            writeln!(f, "{:<20}{kept:>10}{measured:>10}{ratio:>9}{note}", row.name)?;
        }
        if let Some((kept, now)) = &self.tools {
            writeln!(f, "The tools differ. Stored with: {kept}. Now: {now}.")?;
        }
        if !self.has_passed() {
            writeln!(
                f,
                "An increase of more than {TOLERANCE_PERCENT} % fails. To accept it: cargo xtask \
                 instructions --accept"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(&str, u64)]) -> Counts {
        let counts = all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Counts { tools: "rustc 1".to_owned(), counts }
    }

    #[test]
    fn counts_file_round_trips() {
        let counts = counts(&[("core/acquire", 1234), ("core/release", 99)]);
        let text = counts.to_string();
        assert_eq!(text.parse(), Ok(counts));
        assert!(text.ends_with("# with: rustc 1\ncore/acquire 1234\ncore/release 99\n"), "{text}");
        for wrong in ["core/acquire", "core/acquire many"] {
            assert!(wrong.parse::<Counts>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn increases_beyond_tolerance_fail() {
        for (kept, measured, expected) in [
            (1000, 1000, Change::Within),
            (1000, 1020, Change::Within),
            (1000, 1021, Change::More),
            (1000, 980, Change::Within),
            (1000, 979, Change::Less),
            (0, 0, Change::Within),
            (0, 1, Change::More),
        ] {
            assert_eq!(change(Some(kept), Some(measured)), expected, "{kept} {measured}");
        }
        let kept = counts(&[("a", 1000), ("b", 1000)]);
        assert!(Comparison::new(&kept, &counts(&[("a", 900), ("b", 1020)])).has_passed());
        let comparison = Comparison::new(&kept, &counts(&[("a", 900), ("b", 1050)]));
        assert!(!comparison.has_passed());
        let text = comparison.to_string();
        assert!(text.contains("1000      1050   1.0500  MORE"), "{text}");
        assert!(text.contains("0.9000  less"), "{text}");
        assert!(text.contains("--accept"), "{text}");
    }

    #[test]
    fn unknown_and_missing_operations_fail() {
        let kept = counts(&[("a", 1000)]);
        for measured in [counts(&[]), counts(&[("a", 1000), ("b", 1)])] {
            assert!(!Comparison::new(&kept, &measured).has_passed());
        }
    }

    #[test]
    fn other_tools_are_reported() {
        let kept = counts(&[("a", 1000)]);
        let measured = Counts { tools: "rustc 2".to_owned(), ..kept.clone() };
        let comparison = Comparison::new(&kept, &measured);
        assert!(comparison.has_passed() && comparison.to_string().contains("rustc 2"));
    }

    #[test]
    fn total_is_read_from_summary() {
        assert_eq!(total("events: Ir\nfn=main\n1 5\nsummary: 123456\n"), Some(123_456));
        assert_eq!(total("events: Ir\n"), None);
    }
}

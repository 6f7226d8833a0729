//! The mutant table of `docs/testing.md` has every mutant, and the result that
//! `seeds.txt` keeps.
//!
//! `tests/docs` compares `docs/safety.md` with this table.

use std::{collections::BTreeMap, fs, path::Path};

use leasehold_simulator::broken::Broken;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Kept seed and violated invariant of each mutant. The first seed of a mutant is
/// the one that the search finds.
fn kept() -> BTreeMap<String, (u64, String)> {
    let mut kept = BTreeMap::new();
    for line in read("seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        if let [key, seed, found_as] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let result = (seed.parse().unwrap(), found_as.to_owned());
            kept.entry(key.to_owned()).or_insert(result);
        }
    }
    kept
}

/// Returns the row of a mutant, as `leasehold-sim --mutant all` prints it.
fn row(mutant: Broken, (seed, found_as): &(u64, String)) -> String {
    let (rule, key, what) = (mutant.rule(), mutant.key(), mutant.what());
    format!("| {rule} | {key} | {what} | {} | {found_as} |", seed + 1)
}

#[test]
fn mutant_table_is_up_to_date() {
    let page = read("../../docs/testing.md");
    let table = page.split("| Rule | Mutant | Defect | Seeds until found | Found as |\n");
    let table = table.last().unwrap().lines().skip(1).take_while(|line| line.starts_with('|'));
    let found: Vec<&str> = table.collect();
    let kept = kept();
    let expected: Vec<String> =
        Broken::all().into_iter().map(|mutant| row(mutant, &kept[mutant.key()])).collect();
    let missing: Vec<_> = expected.iter().filter(|row| !found.contains(&row.as_str())).collect();
    assert!(missing.is_empty(), "missing in docs/testing.md: {missing:#?}");
    assert_eq!(found.len(), expected.len(), "docs/testing.md has mutants that do not exist");
}

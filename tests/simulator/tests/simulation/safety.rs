//! `docs/safety.md` names functions, tests and mutants that exist, and every mutant.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use leasehold_simulator::broken::Broken;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(repository().join("docs/safety.md")).unwrap()
}

/// Text of the code spans in a line, and whether " in " follows each.
fn code_spans(line: &str) -> Vec<(&str, bool)> {
    let parts: Vec<&str> = line.split('`').collect();
    assert_eq!(parts.len() % 2, 1, "odd number of backquotes: {line}");
    let spans = parts.chunks_exact(2);
    let followed = parts.iter().skip(2).step_by(2).map(|text| text.trim() == "in");
    spans.map(|pair| pair[1]).zip(followed).collect()
}

/// References "`function` in `path`" of a cell.
fn references(cell: &str) -> Vec<(&str, &str)> {
    let spans = code_spans(cell);
    spans.windows(2).filter(|pair| pair[0].1).map(|pair| (pair[0].0, pair[1].0)).collect()
}

/// Mutant keys of a cell: the code spans that belong to no reference.
fn mutants(cell: &str) -> Vec<&str> {
    let spans = code_spans(cell);
    let is_path = |nth: usize| nth > 0 && spans[nth - 1].1;
    let keys =
        spans.iter().enumerate().filter(|(nth, (_, is_function))| !is_function && !is_path(*nth));
    keys.map(|(_, (key, _))| *key).collect()
}

/// Anchors, each with the last two cells of its rows: function, and what shows it.
fn rows(page: &str) -> Vec<(String, String, String)> {
    let mut anchor = String::new();
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some((_, rest)) = line.split_once("<a id=\"") {
            anchor = rest.split_once('"').unwrap().0.to_owned();
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let is_row = line.starts_with('|') && !line.starts_with("|--") && cells[0] != "Rule";
        if is_row && cells[0] != "Invariant" {
            let [.., function, shown_by] = cells[..] else { panic!("{line}") };
            rows.push((anchor.clone(), function.to_owned(), shown_by.to_owned()));
        }
    }
    rows
}

#[test]
fn safety_page_names_functions_that_exist() {
    let page = page();
    let mut sources = BTreeMap::new();
    for (anchor, function, shown_by) in rows(&page) {
        assert!(!references(&function).is_empty(), "rule {anchor}: no function in {function:?}");
        for (name, path) in references(&function).into_iter().chain(references(&shown_by)) {
            let source = sources.entry(path.to_owned()).or_insert_with(|| {
                let source = fs::read_to_string(repository().join(path));
                source.unwrap_or_else(|error| panic!("rule {anchor}: {path}: {error}"))
            });
            let is_defined =
                ["(", "<"].iter().any(|next| source.contains(&format!("fn {name}{next}")));
            assert!(is_defined, "rule {anchor}: no function {name} in {path}");
        }
    }
}

#[test]
fn safety_page_names_every_mutant_in_the_section_of_its_rule() {
    let page = page();
    let mut named = BTreeSet::new();
    for (anchor, _, shown_by) in rows(&page) {
        let keys = mutants(&shown_by);
        assert!(!keys.is_empty() || !references(&shown_by).is_empty(), "rule {anchor}: {shown_by}");
        for key in keys {
            let mutant = Broken::of_key(key);
            let mutant = mutant.unwrap_or_else(|| panic!("rule {anchor}: no mutant {key}"));
            named.insert((mutant.rule(), anchor.clone(), key.to_owned()));
        }
    }
    for mutant in Broken::all() {
        let expected = (mutant.rule(), mutant.rule(), mutant.key().to_owned());
        assert!(
            named.contains(&expected),
            "mutant {mutant} is missing from rule {}",
            mutant.rule()
        );
    }
}

#[test]
fn safety_page_has_every_rule_and_invariant() {
    let anchors: BTreeSet<String> = rows(&page()).into_iter().map(|(anchor, ..)| anchor).collect();
    let rules = (1..=14).map(|rule| rule.to_string());
    let invariants = [('I', 7), ('L', 6), ('E', 4)];
    let invariants = invariants
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    let missing: Vec<_> = rules.chain(invariants).filter(|id| !anchors.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

//! `docs/safety.md` names functions, tests and mutants that exist, and every mutant.
//!
//! The mutants are those of the table in `docs/testing.md`, which a test of the
//! simulator compares with its registry.

use std::collections::BTreeSet;

use crate::{
    markdown::{code_spans, read, split, table_rows},
    source,
};

/// Header of the mutant table in `docs/testing.md`.
const MUTANTS: [&str; 5] = ["Rule", "Mutant", "Defect", "Seeds until found", "Found as"];

/// A row of the safety page: the anchor that it belongs to, and its last two cells.
struct Row {
    line: usize,
    anchor: String,
    function: String,
    shown_by: String,
}

fn rows(page: &str) -> Vec<Row> {
    let mut anchor = String::new();
    let mut rows = Vec::new();
    for (line, text) in split(page).1 {
        if let Some((_, rest)) = text.split_once("<a id=\"") {
            rest.split('"').next().unwrap().clone_into(&mut anchor);
        }
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        if let [first, .., function, shown_by] = cells[..]
            && !["Rule", "Invariant"].contains(&first)
            && !first.starts_with("--")
        {
            let (function, shown_by) = (function.to_owned(), shown_by.to_owned());
            rows.push(Row { line, anchor: anchor.clone(), function, shown_by });
        }
    }
    rows
}

/// References "`function` in `path`" of a cell, and its other code spans.
fn references(cell: &str) -> (Vec<(&str, &str)>, Vec<&str>) {
    let (mut references, mut others) = (Vec::new(), Vec::new());
    let mut spans = code_spans(cell).into_iter().peekable();
    while let Some(span) = spans.next() {
        match spans.peek() {
            Some(path) if cell.contains(&format!("`{span}` in `{path}`")) => {
                references.push((span, *path));
                spans.next();
            }
            _ => others.push(span),
        }
    }
    (references, others)
}

/// Problems of the functions and tests that a page names.
fn problems(page: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for Row { line, anchor, function, shown_by } in rows(page) {
        let mut report = |problem| problems.push(format!("{line}: rule {anchor}: {problem}"));
        let (functions, others) = references(&function);
        let (tests, mutants) = references(&shown_by);
        if functions.is_empty() || !others.is_empty() {
            report(format!("no function in {function:?}"));
        }
        if tests.is_empty() && mutants.is_empty() {
            report(format!("no test and no mutant in {shown_by:?}"));
        }
        let named = functions.into_iter().chain(tests);
        named.filter_map(|(name, path)| source::problem(name, path)).for_each(report);
    }
    problems
}

/// Mutants of a page, each with the anchor of its section.
fn mutants(page: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for row in rows(page) {
        let keys = references(&row.shown_by).1;
        found.extend(keys.iter().map(|key| (row.anchor.clone(), (*key).to_owned())));
    }
    found
}

#[test]
fn safety_page_names_functions_that_exist() {
    let problems = problems(&read("docs/safety.md"));
    assert!(problems.is_empty(), "docs/safety.md:{}", problems.join("\ndocs/safety.md:"));
}

#[test]
fn safety_page_names_every_mutant_in_section_of_rule() {
    let testing = read("docs/testing.md");
    let registered: BTreeSet<(String, String)> = table_rows(&testing, &MUTANTS)
        .into_iter()
        .map(|(_, cells)| (cells[0].to_owned(), cells[1].to_owned()))
        .collect();
    let keys: BTreeSet<&String> = registered.iter().map(|(_, key)| key).collect();
    let named = mutants(&read("docs/safety.md"));
    let unknown: Vec<_> = named.iter().filter(|(_, key)| !keys.contains(key)).collect();
    assert!(unknown.is_empty(), "not in docs/testing.md: {unknown:?}");
    let missing: Vec<_> = registered.difference(&named).collect();
    assert!(missing.is_empty(), "not in the section of their rule: {missing:?}");
}

#[test]
fn safety_page_has_every_rule_and_invariant() {
    let anchors: BTreeSet<String> =
        rows(&read("docs/safety.md")).into_iter().map(|row| row.anchor).collect();
    let rules = (1..=14).map(|rule| rule.to_string());
    let invariants = [('I', 7), ('L', 6), ('E', 4)];
    let invariants = invariants
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    let missing: Vec<_> = rules.chain(invariants).filter(|id| !anchors.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn rows_without_function_or_test_are_problems() {
    let header =
        "## <a id=\"1\"></a>1. A\n| Rule | Reason | Function | Shown by |\n|---|---|---|---|\n";
    let this = "`rows` in `tests/docs/safety.rs`";
    let page = |row: &str| format!("{header}{row}\n");
    let good = page(&format!("| r | s | {this}, {this} | `1`, {this} |"));
    assert_eq!(problems(&good), [""; 0]);
    assert_eq!(mutants(&good), [("1".to_owned(), "1".to_owned())].into());
    for bad in [
        format!("| r | s | {this} | |"),
        "| r | s | | `1` |".to_owned(),
        "| r | s | `rows` | `1` |".to_owned(),
        "| r | s | `gone` in `tests/docs/safety.rs` | `1` |".to_owned(),
        format!("| r | s | {this} | `gone` in `tests/docs/safety.rs` |"),
    ] {
        assert_eq!(problems(&page(&bad)).len(), 1, "{bad}");
    }
}

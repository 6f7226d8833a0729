//! Comparison of `docs/fencing.md` with the tests.

use std::{collections::BTreeSet, fs};

const RESOURCES: [&str; 4] = ["blob", "container", "table", "queue"];
const WAYS: [&str; 4] = ["last_writer_wins", "optimistic", "pessimistic", "leasehold"];

fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Names of the tests in the sources of the other modules.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for resource in RESOURCES {
        let source = read(&format!("tests/azure/fence/rows/{resource}.rs"));
        for part in source.split("#[tokio::test]").skip(1) {
            let (_, name) = part.split_once("async fn ").unwrap();
            found.insert(name.split_once('(').unwrap().0.to_owned());
        }
    }
    found
}

#[test]
fn page_rows_and_tests_match() {
    let page = read("docs/fencing.md");
    let rows = page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|-"));
    let (mut tested, mut untested) = (BTreeSet::new(), 0);
    for row in rows.filter(|row| !row.ends_with("| test |")) {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        if last == "not run" {
            assert!(row.starts_with("| file share |"), "only services that Azurite lacks: {row}");
            untested += 1;
            continue;
        }
        let name = last.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
        let name = name.unwrap_or_else(|| panic!("no test in {row}"));
        assert!(tested.insert(name.to_owned()), "duplicate: {name}");
    }
    let expected: BTreeSet<_> =
        RESOURCES.iter().flat_map(|resource| WAYS.map(|way| format!("{resource}_{way}"))).collect();
    assert_eq!(tested, expected);
    assert_eq!(tests(), expected);
    assert_eq!(untested, WAYS.len());
}

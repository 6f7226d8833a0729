//! The paths in `docs/architecture.md` name functions that exist, and only the places
//! that it lists use tonic and prost.

use crate::{
    markdown::{code_spans, files_in, read, table_rows},
    source,
};

const HEADER: [&str; 3] = ["Step", "File", "Function"];

/// Beginning of the line that lists the places that may use tonic and prost.
const RPC_PLACES: &str = "- tonic and prost are used only in ";

/// Problems of the path tables in a page, with their lines.
fn problems(page: &str) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    for (line, cells) in table_rows(page, &HEADER) {
        let [_, file, functions] = cells[..] else {
            problems.push((line, "a row has three cells".to_owned()));
            continue;
        };
        let (files, functions) = (code_spans(file), code_spans(functions));
        let ([path], false) = (&files[..], functions.is_empty()) else {
            problems.push((line, "a row names one file and at least one function".to_owned()));
            continue;
        };
        let found = functions.iter().filter_map(|function| source::problem(function, path));
        problems.extend(found.map(|problem| (line, problem)));
    }
    problems
}

#[test]
fn paths_name_functions_that_exist() {
    let page = read("docs/architecture.md");
    for path in ["acquire", "renewal", "release", "loss"] {
        let section = page
            .split("\n## ")
            .find(|section| section.lines().next().is_some_and(|heading| heading.ends_with(path)));
        let section = section.unwrap_or_else(|| panic!("no section for the path of a {path}"));
        assert!(table_rows(section, &HEADER).len() >= 4, "no path of a {path}");
    }
    let problems: Vec<String> = problems(&page)
        .into_iter()
        .map(|(line, problem)| format!("docs/architecture.md:{line}: {problem}"))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Returns whether a Rust source file names a crate of tonic or prost outside of
/// comments.
fn uses_rpc_crates(source: &str) -> bool {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
        .filter_map(|word| word.split('_').next())
        .any(|word| ["tonic", "prost"].contains(&word))
}

/// Returns whether a file is a place, or below it.
fn is_in(file: &str, place: &str) -> bool {
    file.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[test]
fn only_listed_places_use_tonic_and_prost() {
    let page = read("docs/architecture.md");
    let places = page.lines().find_map(|line| line.strip_prefix(RPC_PLACES)).unwrap();
    let places = code_spans(places);
    let files: Vec<String> = ["src", "crates", "clients"]
        .iter()
        .flat_map(|directory| files_in(directory, "rs"))
        .filter(|file| uses_rpc_crates(&read(file)))
        .collect();
    let unlisted: Vec<_> =
        files.iter().filter(|file| !places.iter().any(|place| is_in(file, place))).collect();
    assert!(unlisted.is_empty(), "not listed in docs/architecture.md: {unlisted:?}");
    let unused: Vec<_> =
        places.iter().filter(|place| !files.iter().any(|file| is_in(file, place))).collect();
    assert!(unused.is_empty(), "listed in docs/architecture.md without a use: {unused:?}");
}

#[test]
fn uses_of_rpc_crates_are_found() {
    for code in ["use tonic::Status;", "fn f() { prost_types::g() }", "\n#[tonic::async_trait]"] {
        assert!(uses_rpc_crates(code), "{code}");
    }
    assert!(!uses_rpc_crates("//! tonic\n    // prost::Message\nlet isotonic = my_prost;"));
    assert!(is_in("src/rpc/mod.rs", "src/rpc") && is_in("src/daemon.rs", "src/daemon.rs"));
    assert!(!is_in("src/rpc_other.rs", "src/rpc"));
}

#[test]
fn missing_functions_are_problems() {
    let page = "| Step | File | Function |\n|---|---|---|\n\
                | good | `tests/docs/architecture.rs` | `problems` |\n\
                | gone | `tests/docs/architecture.rs` | `problems`, `gone` |\n\
                | no file | | `problems` |\n\
                | no function | `tests/docs/architecture.rs` | |\n";
    let lines: Vec<usize> = problems(page).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [4, 5, 6]);
}

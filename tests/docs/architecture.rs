//! The paths in `docs/architecture.md` name functions that exist.

use crate::{
    markdown::{code_spans, read, table_rows},
    source,
};

const HEADER: [&str; 3] = ["Step", "File", "Function"];

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

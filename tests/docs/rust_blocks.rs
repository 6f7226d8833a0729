//! Rust blocks of the documentation are part of compiled examples.
//!
//! Cargo compiles the examples with the tests and lints of their crates. White space
//! is not compared, because rustfmt formats the examples only.

use std::fs;

use crate::markdown::{files_in, pages_in, read, repository, split};

/// Directories with the examples.
const EXAMPLES: [&str; 2] = ["clients/rust/examples", "clients/rust-fence/examples"];

/// Lines of code without blank lines, each without indentation and with single
/// spaces.
fn code<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    words.filter(|line| !line.is_empty()).collect()
}

/// Counts the Rust blocks of a page, and finds the blocks that no example contains as
/// consecutive lines.
fn check(page: &str, examples: &[Vec<String>]) -> (usize, Vec<String>) {
    let (mut count, mut problems) = (0, Vec::new());
    for block in split(page).0.into_iter().filter(|block| block.tag.starts_with("rust")) {
        count += 1;
        let lines = code(block.lines.iter().copied());
        if block.tag != "rust" {
            problems.push(format!("{}: is tagged {:?}; use `rust`", block.line, block.tag));
        } else if lines.is_empty() {
            problems.push(format!("{}: has no code", block.line));
        } else if !examples.iter().any(|example| example.windows(lines.len()).any(|w| w == lines)) {
            problems.push(format!("{}: no example has these lines: {lines:#?}", block.line));
        }
    }
    (count, problems)
}

#[test]
fn rust_blocks_are_in_compiled_examples() {
    let files = EXAMPLES.into_iter().flat_map(|directory| files_in(directory, "rs"));
    let examples: Vec<_> = files
        .map(|path| code(fs::read_to_string(repository().join(path)).unwrap().lines()))
        .collect();
    let mut pages = vec!["README.md".to_owned()];
    pages.extend(["docs", "clients"].into_iter().flat_map(pages_in));
    let (mut total, mut problems) = (0, Vec::new());
    for page in pages {
        let (count, found) = check(&read(&page), &examples);
        total += count;
        problems.extend(found.into_iter().map(|problem| format!("{page}:{problem}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(total > 5, "only {total} blocks were compared");
}

#[test]
fn blocks_outside_of_examples_are_problems() {
    let examples = [code("fn main() {\n    a(); // b\n\n    c();\n}\n".lines())];
    let found = |tag: &str, text: &str| {
        let (count, problems) = check(&format!("# A\n```{tag}\n{text}\n```\n"), &examples);
        assert_eq!(count, 1);
        problems.len()
    };
    assert_eq!(found("rust", "a();    // b\nc();"), 0);
    for text in ["a();", "c();\na(); // b", "a(); // b\nd();\nc();", ""] {
        assert_eq!(found("rust", text), 1, "{text:?}");
    }
    assert_eq!(found("rust,ignore", "c();"), 1);
    assert_eq!(check("```sh\nx\n```\n", &examples), (0, Vec::new()));
}

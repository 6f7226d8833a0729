//! The messages in `docs/troubleshooting.md` are messages of the code.

use std::fs;

use crate::markdown::{code_spans, files_in, read, repository, table_rows};

const PAGE: &str = "docs/troubleshooting.md";

/// Headers of the tables whose first column has messages.
const HEADERS: [&[&str]; 2] = [&["Message", "Cause", "Fix"], &["Message", "Meaning", "What to do"]];

/// Directories with the code that prints messages.
const CODE: [&str; 3] = ["src", "crates", "clients/rust/src"];

/// Minimum length of a part of a message that is compared. Shorter parts join
/// names and numbers, and the code often formats them separately.
const MIN_PART_BYTES: usize = 12;

/// Returns the text that the string literals of a source file produce: without
/// escaped quotes and line breaks.
fn printed(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        match line.strip_suffix('\\') {
            Some(line) => text.push_str(&format!("{} ", line.trim())),
            None => text.push_str(&format!("{}\n", line.trim())),
        }
    }
    text.replace("\\\"", "\"").replace("  ", " ")
}

/// Parts of a message. They are separated by the names and numbers that `…` stands
/// for, and by punctuation, because the code joins messages there.
fn parts(message: &str) -> Vec<&str> {
    let parts = message.split(['…', '"', ':', ';', '(', ')']);
    parts.map(str::trim).filter(|part| part.len() >= MIN_PART_BYTES).collect()
}

#[test]
fn quoted_messages_are_in_the_code() {
    let sources: Vec<String> = CODE
        .into_iter()
        .flat_map(|directory| files_in(directory, "rs"))
        .map(|path| printed(&fs::read_to_string(repository().join(path)).unwrap()))
        .collect();
    let page = read(PAGE);
    let rows = HEADERS.into_iter().flat_map(|header| table_rows(&page, header));
    let mut problems = Vec::new();
    let mut compared = 0;
    for (line, cells) in rows {
        for part in code_spans(cells[0]).into_iter().flat_map(parts) {
            compared += 1;
            if !sources.iter().any(|source| source.contains(part)) {
                problems.push(format!("{PAGE}:{line}: no message with {part:?}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(compared > 20, "only {compared} parts of messages were compared");
}

#[test]
fn literals_are_read_as_printed() {
    let source = "let a = \"lock \\\"{name}\\\" is \\\n         held by\";\nlet b = 1;\n";
    assert_eq!(printed(source), "let a = \"lock \"{name}\" is held by\";\nlet b = 1;\n");
    let message = "lock \"…\" is at risk: renewals are failing; use --wait to wait";
    assert_eq!(parts(message), ["renewals are failing", "use --wait to wait"]);
}

//! The pages in `docs/reference` are generated from the code.

mod cli;
mod configuration;
mod metrics;
mod protocol;

use std::{env, fs};

use crate::markdown::repository;

/// Command that writes the generated pages.
const ACCEPT: &str = "LEASEHOLD_ACCEPT_DOCS=1 cargo test -p leasehold --test docs references";

/// Returns the head of a generated page.
fn head(title: &str, reader: &str, source: &str) -> String {
    format!(
        "# {title}\n\n<!-- Generated from {source}. Do not edit; update with:\n     {ACCEPT} -->\n\n\
         {reader}"
    )
}

/// Compares a page with its generated content, or writes the page if the
/// environment asks for it.
fn compare(page: &str, generated: &str) {
    let path = repository().join(page);
    if env::var_os("LEASEHOLD_ACCEPT_DOCS").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, generated).unwrap();
        return;
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    if let Some(difference) = difference(&found, generated) {
        panic!("{page} is not up to date: {difference}\nUpdate it with: {ACCEPT}");
    }
}

/// Describes the first difference between a page and its generated content.
fn difference(found: &str, generated: &str) -> Option<String> {
    if found == generated {
        return None;
    }
    let (mut old, mut new) = (found.lines(), generated.lines());
    for line in 1.. {
        let (old, new) = (old.next(), new.next());
        if old != new || old.is_none() {
            let quote = |line: Option<&str>| line.map_or("end of page".to_owned(), str::to_owned);
            return Some(format!("line {line}\n- {}\n+ {}", quote(old), quote(new)));
        }
    }
    None
}

/// Escapes text for a cell of a table. Markup in backquotes stays as it is, except
/// for vertical bars.
fn cell(text: &str) -> String {
    escaped(&text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"))
}

/// Escapes text that is not Markdown. Markup in backquotes stays as it is.
fn escaped(text: &str) -> String {
    let escape = |(nth, part): (usize, &str)| {
        if nth % 2 == 0 { part.replace('<', "\\<").replace('*', "\\*") } else { part.to_owned() }
    };
    text.split('`').enumerate().map(escape).collect::<Vec<_>>().join("`")
}

/// Adds the period that ends a sentence.
fn sentence(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', ':']) { text.to_owned() } else { format!("{text}.") }
}

#[test]
fn differences_name_first_line() {
    assert_eq!(difference("a\nb\n", "a\nb\n"), None);
    assert_eq!(difference("a\nb\n", "a\nc\n").unwrap(), "line 2\n- b\n+ c");
    assert_eq!(difference("", "a\n").unwrap(), "line 1\n- end of page\n+ a");
    assert!(difference("a", "a\n").is_some());
}

#[test]
fn cells_are_escaped() {
    assert_eq!(cell("a | <b>\n  `<c> | *` *"), "a \\| \\<b> `<c> \\| *` \\*");
}

//! The parts of Markdown that the checks need: fenced blocks, headings, anchors,
//! links and tables.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads a page by its path in the repository.
pub(crate) fn read(page: &str) -> String {
    fs::read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Paths of all Markdown files below a directory.
pub(crate) fn pages_in(directory: &str) -> Vec<String> {
    files_in(directory, "md")
}

/// Paths of all files below a directory whose names end with an extension,
/// relative to the repository and sorted.
pub(crate) fn files_in(directory: &str, extension: &str) -> Vec<String> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::from(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(repository().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// A fenced code block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// Number of the line with the opening fence, from 1.
    pub(crate) line: usize,
    /// Words after the opening fence, such as `sh not-run`.
    pub(crate) tag: &'a str,
    pub(crate) lines: Vec<&'a str>,
}

/// Splits a page into its fenced blocks and its other lines, with their numbers
/// from 1.
pub(crate) fn split(page: &str) -> (Vec<Block<'_>>, Vec<(usize, &str)>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut open: Option<(Block<'_>, usize)> = None;
    for (number, line) in (1..).zip(page.lines()) {
        let text = line.trim_start();
        let fence = text.len() - text.trim_start_matches('`').len();
        match &mut open {
            Some((_, length)) if fence >= *length && text.trim_end().len() == fence => {
                blocks.extend(open.take().map(|(block, _)| block));
            }
            Some((block, _)) => block.lines.push(line),
            None if fence >= 3 => {
                let tag = text[fence..].trim();
                open = Some((Block { line: number, tag, lines: Vec::new() }, fence));
            }
            None => prose.push((number, line)),
        }
    }
    assert!(open.is_none(), "fenced block without an end: {open:?}");
    (blocks, prose)
}

/// Anchors of a page: those of its headings, by GitHub's rules, and `<a id="…">`.
pub(crate) fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in split(page).1 {
        for (_, rest) in
            line.match_indices("<a id=\"").map(|(at, tag)| line.split_at(at + tag.len()))
        {
            anchors.insert(rest.split('"').next().unwrap().to_owned());
        }
        let text = line.trim_start_matches('#');
        if (1..=6).contains(&(line.len() - text.len())) && text.starts_with(' ') {
            let first = slug(text.trim());
            let mut anchor = first.clone();
            let mut repetition = 0;
            while !anchors.insert(anchor) {
                repetition += 1;
                anchor = format!("{first}-{repetition}");
            }
        }
    }
    anchors
}

/// Returns the anchor that GitHub gives to a heading.
fn slug(heading: &str) -> String {
    // Tags and the targets of links are not part of the text.
    let mut text = String::new();
    let mut rest = heading;
    while let Some(at) = rest.find(['<', ']']) {
        text.push_str(&rest[..at]);
        let end = match &rest[at..] {
            tag if tag.starts_with('<') => tag.find('>'),
            link if link.starts_with("](") => link.find(')'),
            _ => Some(0),
        };
        rest = &rest[at + end.map_or(rest.len() - at, |end| end + 1)..];
    }
    text.push_str(rest);
    text.trim()
        .to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// Targets of the links and images in a page, with the numbers of their lines.
pub(crate) fn links(page: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in split(page).1 {
        let line = without_code(line);
        let inline = line.match_indices("](").map(|(at, open)| &line[at + open.len()..]);
        let definition =
            line.trim_start().starts_with('[').then(|| line.split_once("]: ")).flatten();
        let targets = inline.map(target).chain(definition.map(|(_, rest)| target(rest)));
        links.extend(targets.map(|target| (number, target)));
    }
    links
}

/// Returns the target at the beginning of a text, up to its title or the
/// parenthesis that closes the link.
fn target(text: &str) -> String {
    let mut depth = 0;
    let end = text.find(|letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth < 0 || letter.is_whitespace()
    });
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Removes the content of code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Text of the code spans in a line.
pub(crate) fn code_spans(line: &str) -> Vec<&str> {
    let parts: Vec<&str> = line.split('`').collect();
    assert_eq!(parts.len() % 2, 1, "odd number of backquotes: {line}");
    parts.chunks_exact(2).map(|pair| pair[1]).collect()
}

/// Cells of the rows of all tables whose header has these cells, with the numbers
/// of their lines. A vertical bar within a cell is not supported.
pub(crate) fn table_rows<'a>(page: &'a str, header: &[&str]) -> Vec<(usize, Vec<&'a str>)> {
    let mut rows = Vec::new();
    let mut is_wanted = None;
    for (number, line) in split(page).1 {
        if !line.starts_with('|') {
            is_wanted = None;
            continue;
        }
        let line = line.strip_prefix('|').unwrap().trim_end().trim_end_matches('|');
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match is_wanted {
            None => is_wanted = Some(cells == header),
            Some(true) if !cells[0].starts_with("--") => rows.push((number, cells)),
            Some(_) => {}
        }
    }
    rows
}

#[test]
fn blocks_and_prose_are_separated() {
    let page = "# A\n```sh not-run\nx\n```\n- b\n  ```text\n  y\n  ```\n````md\n```sh\n````\nz\n";
    let (blocks, prose) = split(page);
    let expected = [
        Block { line: 2, tag: "sh not-run", lines: vec!["x"] },
        Block { line: 6, tag: "text", lines: vec!["  y"] },
        Block { line: 9, tag: "md", lines: vec!["```sh"] },
    ];
    assert_eq!(blocks, expected);
    assert_eq!(prose, [(1, "# A"), (5, "- b"), (12, "z")]);
}

#[test]
fn anchors_follow_github_rules() {
    let page = "# One `two` (three)!\n## One two three\n# A_b – c/d\n### [L](x.md)\n\
                ## <a id=\"7\"></a>7. Unknown outcomes\n#No\n```sh\n# comment\n```\n";
    let expected = ["7", "7-unknown-outcomes", "a_b--cd", "l", "one-two-three", "one-two-three-1"];
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn links_are_found_outside_of_code() {
    let page =
        "[a](b.md#c) ![d](e.png \"f\") `[g](h)`\n[i]: j.md\n```md\n[k](l)\n```\n[m](n_(o).md)";
    let found = links(page);
    let expected = [(1, "b.md#c"), (1, "e.png"), (2, "j.md"), (6, "n_(o).md")];
    assert_eq!(found, expected.map(|(line, target)| (line, target.to_owned())));
}

#[test]
fn tables_are_selected_by_header() {
    let page = "| A | B |\n|---|---|\n| 1 | 2 |\n\n| A | C |\n|---|---|\n| 3 | 4 |\n";
    assert_eq!(table_rows(page, &["A", "C"]), [(7, vec!["3", "4"])]);
}

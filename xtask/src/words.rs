//! Counts of the patterns in `.ci/words.txt`: wording that the project avoids.
//!
//! Each line of the file has a pattern, a tab and the words to use instead. A
//! line that begins with `#` is the title of the section that follows. Patterns
//! are matched by `git grep`.

use std::{fs, path::Path, process::Command};

/// File with the patterns.
const FILE: &str = ".ci/words.txt";

/// Files that are not searched.
const EXCLUDED: [&str; 4] =
    [":!.ci", ":!tests/corpus", ":(exclude,glob)**/*.lock", ":(exclude,glob)**/package-lock.json"];

/// Group of patterns that are matched alike.
#[derive(Debug, PartialEq, Eq)]
struct Section<'a> {
    title: &'a str,
    /// True for patterns of source code, which are case-sensitive and have their
    /// own word limits.
    is_code: bool,
    patterns: Vec<&'a str>,
}

fn parse(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(title) = line.strip_prefix('#') {
            let (title, is_code) = (title.trim(), title.contains("in code"));
            sections.push(Section { title, is_code, patterns: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.patterns.extend(line.split('\t').next());
        }
    }
    sections
}

/// Counts the lines below a directory that match a pattern. `scope` is the option
/// of `git grep` that selects the files.
fn count(directory: &Path, scope: &str, section: &Section<'_>, pattern: &str) -> usize {
    let mut grep = Command::new("git");
    grep.args(["grep", scope, "-I", "-c", "-E"]).current_dir(directory).env("LC_ALL", "C");
    if section.is_code {
        grep.args(["-e", pattern, "--", "*.rs", "*.proto"]);
    } else {
        // A space also matches the underscore of an identifier.
        let words = pattern.replace(' ', "[ _]");
        grep.args(["-i", "-e", &format!("(^|[^a-z])({words})([^a-z]|$)"), "--"]);
    }
    let output = grep.args(EXCLUDED).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    let counts = String::from_utf8_lossy(&output);
    let counts = counts.lines().filter_map(|line| line.rsplit_once(':'));
    counts.filter_map(|(_, count)| count.parse::<usize>().ok()).sum()
}

/// Prints the counts. Never fails.
pub(crate) fn run(root: &Path) {
    let text = fs::read_to_string(root.join(FILE)).unwrap_or_else(|error| {
        println!("{FILE}: {error}");
        String::new()
    });
    for section in parse(&text) {
        println!("{}", section.title);
        let mut sum = 0;
        for pattern in &section.patterns {
            let lines = count(root, "--untracked", &section, pattern);
            sum += lines;
            if lines > 0 {
                println!("{lines:6}  {pattern}");
            }
        }
        println!("{sum:6}  lines in all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_parsed() {
        let text =
            "# Target zero in prose.\na b|c\t→ d\n\n# Target zero in code: x.\n//! (What)\t→ e\n";
        let expected = [
            Section { title: "Target zero in prose.", is_code: false, patterns: vec!["a b|c"] },
            Section {
                title: "Target zero in code: x.",
                is_code: true,
                patterns: vec!["//! (What)"],
            },
        ];
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn patterns_of_this_workspace_are_parsed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = fs::read_to_string(root.join(FILE)).unwrap();
        let sections = parse(&text);
        assert!(sections.iter().any(|section| section.is_code));
        assert!(sections.iter().all(|section| !section.patterns.is_empty()));
    }

    #[test]
    fn matching_lines_are_counted() {
        let directory =
            std::env::temp_dir().join(format!("leasehold-words-{}", std::process::id()));
        fs::create_dir_all(directory.join(".ci")).unwrap();
        fs::create_dir_all(directory.join("a")).unwrap();
        let text = "let foo_bar = 1;\n// Foo bar, foo bar\n// foobar\n// XFoo barx\n// FOO_BARS\n//! What\n";
        for path in [".ci/words.txt", "a/code.rs", "a/page.md", "Cargo.lock", "a/b.lock"] {
            fs::write(directory.join(path), text).unwrap();
        }
        let section = |is_code| Section { title: "", is_code, patterns: Vec::new() };
        let count =
            |is_code, pattern: &str| count(&directory, "--no-index", &section(is_code), pattern);
        assert_eq!(count(false, "foo bar"), 4, "two lines in each of two files");
        assert_eq!(count(false, "foo bars?"), 6, "case is ignored");
        assert_eq!(count(true, "//[/!] (What|Who)( |$)"), 1, "only in source code");
        assert_eq!(count(true, "//[/!] (what)( |$)"), 0, "case matters");
        fs::remove_dir_all(&directory).unwrap();
    }
}

//! Functions that pages name.

use std::fs;

use crate::markdown::repository;

/// Returns whether a Rust source file defines a function.
pub(crate) fn defines(source: &str, name: &str) -> bool {
    let definition = format!("fn {name}");
    source.match_indices(&definition).any(|(at, found)| {
        let before = source[..at].chars().next_back();
        before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
            && source[at + found.len()..].starts_with(['(', '<'])
    })
}

/// Returns the problem of a reference to a function in a file, if there is one.
pub(crate) fn problem(function: &str, path: &str) -> Option<String> {
    match fs::read_to_string(repository().join(path)) {
        Err(error) => Some(format!("{path}: {error}")),
        Ok(source) if !defines(&source, function) => {
            Some(format!("no function {function} in {path}"))
        }
        Ok(_) => None,
    }
}

#[test]
fn definitions_are_found() {
    let source = "pub(super) fn step<T>(x: T) {}\nconst fn due() {}\n// fn step_two is not here";
    assert!(defines(source, "step") && defines(source, "due"));
    assert!(!defines(source, "ste") && !defines(source, "step_two") && !defines(source, "x"));
}

#[test]
fn missing_files_and_functions_are_problems() {
    let this = "tests/docs/source.rs";
    assert_eq!(problem("defines", this), None);
    assert_eq!(problem("gone", this).unwrap(), "no function gone in tests/docs/source.rs");
    assert!(problem("defines", "tests/docs/gone.rs").is_some());
}

//! Path of a lock's blob: `locks/<namespace>/<name>`. Bytes that a URL or a path may
//! not carry unchanged are written as `~` and two hexadecimal digits.

use std::fmt::Write;

use leasehold_types::LockName;

/// Folder of all locks, below the configured prefix.
const ROOT: &str = "locks/";

/// Returns the path of a lock's blob.
pub(crate) fn of(prefix: &str, name: &LockName) -> String {
    let mut path = folder(prefix, name.namespace());
    escape(name.name(), &mut path);
    path
}

/// Last part of the path of a break note. An escaped name has `~` only before two
/// hexadecimal digits, so no lock has this path.
const BREAK_NOTE: &str = "/~break";

/// Returns the path of the break note of a lock.
pub(crate) fn break_note(prefix: &str, name: &LockName) -> String {
    of(prefix, name) + BREAK_NOTE
}

/// Reports whether a path is that of a break note.
pub(crate) fn is_break_note(prefix: &str, path: &str) -> bool {
    path.strip_suffix(BREAK_NOTE).is_some_and(|path| lock(prefix, path).is_some())
}

/// Returns the path prefix of a namespace's locks.
pub(crate) fn folder(prefix: &str, namespace: &str) -> String {
    let slash = if prefix.is_empty() { "" } else { "/" };
    format!("{prefix}{slash}{ROOT}{namespace}/")
}

/// Returns the path prefix of all locks.
pub(crate) fn root(prefix: &str) -> String {
    let slash = if prefix.is_empty() { "" } else { "/" };
    format!("{prefix}{slash}{ROOT}")
}

/// Returns a path prefix of all locks of a namespace whose names begin with `start`.
/// Other locks may have it too.
pub(crate) fn beginning(prefix: &str, namespace: &str, start: &str) -> String {
    let mut path = folder(prefix, namespace);
    // The encoding of these depends on the next character.
    escape(start.strip_suffix(['.', '/']).unwrap_or(start), &mut path);
    path
}

/// Returns the lock whose blob has this path; none if it is not a lock's path.
pub(crate) fn lock(prefix: &str, path: &str) -> Option<LockName> {
    let (namespace, escaped) = path.strip_prefix(&root(prefix))?.split_once('/')?;
    let name = LockName::parse(namespace, &unescape(escaped)?).ok()?;
    // A different encoding of the same name is not the path of its blob.
    (of(prefix, &name) == path).then_some(name)
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Escapes a name. Dots and slashes between plain characters are kept. Others are
/// escaped, because intermediaries may change a segment that is empty, or that begins
/// or ends with a dot.
fn escape(text: &str, path: &mut String) {
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        let plain_at = |at: usize| bytes.get(at).copied().is_some_and(is_plain);
        let between = at > 0 && plain_at(at - 1) && plain_at(at + 1);
        if is_plain(byte) || (between && (byte == b'.' || byte == b'/')) {
            path.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            _ = write!(path, "~{byte:02x}");
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'~' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;
    use proptest::prelude::*;

    use super::*;

    fn path(name: &str) -> String {
        of("", &LockName::parse("", name).unwrap())
    }

    #[test]
    fn break_note_is_no_lock() {
        for name in ["orders", "billing/eu-1", "~break", "a/~break", "a."] {
            let name = LockName::parse("", name).unwrap();
            let note = break_note("env", &name);
            assert_eq!(lock("env", &note), None, "{note}");
            assert!(is_break_note("env", &note), "{note}");
            assert!(!is_break_note("env", &of("env", &name)), "{note}");
        }
        assert!(!is_break_note("", "locks/default/.../~break"));
    }

    #[test]
    fn ordinary_names_are_readable() {
        for name in ["orders", "billing/eu-1", "report.v2", "A_b-C.9/x"] {
            assert_eq!(path(name), format!("locks/default/{name}"));
        }
        let lock = LockName::parse("team-a", "orders").unwrap();
        assert_eq!(of("env/prod", &lock), "env/prod/locks/team-a/orders");
    }

    #[test]
    fn ambiguous_segments_are_escaped() {
        for (name, expected) in [
            (".", "~2e"),
            ("..", "~2e~2e"),
            ("a/../b", "a~2f~2e~2e~2fb"),
            ("a//b", "a~2f~2fb"),
            ("/a", "~2fa"),
            ("a/", "a~2f"),
            ("a.", "a~2e"),
            ("a b", "a~20b"),
            ("a%2Fb", "a~252Fb"),
            ("~2f", "~7e2f"),
            ("ü", "~c3~bc"),
        ] {
            assert_eq!(path(name), format!("locks/default/{expected}"), "{name}");
        }
    }

    #[test]
    fn foreign_blobs_are_no_locks() {
        for path in [
            "locks/default/~2",
            "locks/default/~zz",
            "locks/default/",
            "locks/default/~61",
            "locks/default/a b",
            "locks/default/~2E",
            "locks/Default/a",
            "locks/a",
            "other/default/a",
            "locks/default/~ff",
        ] {
            assert_eq!(lock("", path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn every_name_has_a_unique_path_of_allowed_length(
            namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            name in "(\\PC|[./~%]){1,60}",
            prefix in "|[a-z]{1,8}(/[a-z]{1,8})?",
        ) {
            let name = LockName::parse(&namespace, &name.chars().scan(0, |size, c| {
                *size += c.len_utf8();
                (*size <= 256).then_some(c)
            }).collect::<String>()).unwrap();
            let path = of(&prefix, &name);
            prop_assert!(path.len() <= 1024);
            prop_assert!(path.split('/').count() <= 254);
            prop_assert!(path.bytes().all(|b| is_plain(b) || b"./~".contains(&b)));
            prop_assert!(path.split('/').all(|s| !s.is_empty() && !s.starts_with('.') && !s.ends_with('.')));
            prop_assert_eq!(lock(&prefix, &path), Some(name));
        }

        #[test]
        fn prefix_covers_all_names_that_begin_with_it(start in "(\\PC|[./]){0,10}", rest in "(\\PC|[./]){1,10}") {
            let name = LockName::parse("", &format!("{start}{rest}")).unwrap();
            prop_assert!(of("", &name).starts_with(&beginning("", "default", &start)));
        }
    }

    #[test]
    fn names_and_paths_correspond_one_to_one_fuzzed() {
        Fuzz::new("blob-path").max_bytes(1200).run(|input| {
            let text = String::from_utf8_lossy(input);
            let (namespace, name) = text.split_once('\n').unwrap_or(("", &text));
            let mut outcome = String::new();
            for prefix in ["", "env/prod"] {
                // As a name, which must be recovered from its path.
                match LockName::parse(namespace, name) {
                    Ok(name) => {
                        let path = of(prefix, &name);
                        assert!(path.len() <= 1024, "{path}");
                        assert!(path.bytes().all(|b| is_plain(b) || b"./~".contains(&b)), "{path}");
                        assert_eq!(lock(prefix, &path).as_ref(), Some(&name), "{path}");
                        for (at, _) in name.name().char_indices() {
                            let start = beginning(prefix, name.namespace(), &name.name()[..at]);
                            assert!(path.starts_with(&start), "{path}: {start}");
                        }
                        outcome.push_str(if path.contains('~') { "escaped" } else { "plain" });
                    }
                    Err(invalid) => outcome.push_str(invalid.field),
                }
                // As a path, which belongs to at most one name.
                for path in [text.to_string(), format!("{}{text}", root(prefix))] {
                    if let Some(name) = lock(prefix, &path) {
                        assert_eq!(of(prefix, &name), path);
                        outcome.push_str(" found");
                    }
                }
            }
            outcome
        });
    }
}

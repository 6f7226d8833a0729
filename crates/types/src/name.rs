//! Names of locks, valid by construction.

use std::{fmt, sync::Arc};

/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 256;

/// The namespace of those who name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Why a name is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidName {
    /// The field that is not acceptable.
    pub field: &'static str,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

/// A namespace: a DNS label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Box<str>);

impl Namespace {
    /// Checks that `text` is a DNS label; empty means the default namespace.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::check(text)?;
        Ok(Self(if text.is_empty() { DEFAULT_NAMESPACE } else { text }.into()))
    }

    /// Checks a namespace as [`parse`](Self::parse) does, without creating it.
    pub fn check(text: &str) -> Result<(), InvalidName> {
        let label = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !label || text.len() > 63 || text.starts_with('-') || text.ends_with('-') {
            return Err(InvalidName {
                field: "namespace",
                problem: format!(
                    "{} is not a DNS label: 1 to 63 of a-z, 0-9 and '-', with no '-' at either end",
                    quote(text)
                ),
            });
        }
        Ok(())
    }

    /// The label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// The name of a lock within its namespace. Cheap to clone; the names of one
/// namespace are next to each other, in their order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(
    // `namespace/name`: a namespace has no slash, so the first one divides.
    Arc<str>,
);

impl LockName {
    /// Checks both parts.
    pub fn parse(namespace: &str, name: &str) -> Result<Self, InvalidName> {
        Self::new(&Namespace::parse(namespace)?, name)
    }

    /// Checks the name.
    pub fn new(namespace: &Namespace, name: &str) -> Result<Self, InvalidName> {
        Self::check(name)?;
        Ok(Self(format!("{namespace}/{name}").into()))
    }

    /// Checks a name within its namespace, without creating it.
    pub fn check(name: &str) -> Result<(), InvalidName> {
        if name.is_empty() {
            return Err(InvalidName {
                field: "name",
                problem: format!("it is empty; a name has 1 to {LONGEST_NAME} bytes"),
            });
        }
        check_text("name", name, LONGEST_NAME)
    }

    /// Where the names of a namespace that begin with `prefix` begin, in the
    /// order of names. Not itself the name of a lock.
    #[must_use]
    pub fn start_of(namespace: &str, prefix: &str) -> Self {
        Self(format!("{namespace}/{prefix}").into())
    }

    /// Whether it is in this namespace and its name begins so.
    #[must_use]
    pub fn begins_with(&self, namespace: &str, prefix: &str) -> bool {
        self.namespace() == namespace && self.name().starts_with(prefix)
    }

    /// First text after all names of a namespace, in the order of names. Not
    /// itself the name of a lock.
    #[must_use]
    pub fn end_of(namespace: &str) -> Self {
        // '0' follows '/'.
        Self(format!("{namespace}0").into())
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name within the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

/// As people are told of it: quoted, with the namespace only if it is not the
/// default one.
impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace() == DEFAULT_NAMESPACE {
            write!(f, "{:?}", self.name())
        } else {
            write!(f, "{:?} in namespace {}", self.name(), self.namespace())
        }
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// Checks text that people will be shown: short enough, and nothing in it that
/// a terminal would obey.
pub fn check_text(field: &'static str, text: &str, longest: usize) -> Result<(), InvalidName> {
    if text.len() > longest {
        return Err(InvalidName {
            field,
            problem: format!("it has {} bytes; at most {longest} are allowed", text.len()),
        });
    }
    if let Some(at) = text.chars().position(char::is_control) {
        return Err(InvalidName {
            field,
            problem: format!("it has a control character (character {}); none are allowed", at + 1),
        });
    }
    Ok(())
}

/// Quotes a text for an error message: escaped, and cut after 80 characters.
#[must_use]
pub fn quote(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_all_scripts_and_with_slashes_are_fine() {
        for name in ["orders", "a/b/c", "Ü ber", "鎖", &"x".repeat(256)] {
            let lock = LockName::parse("", name).unwrap();
            assert_eq!((lock.namespace(), lock.name()), ("default", name));
        }
    }

    #[test]
    fn bad_names_say_what_is_allowed() {
        let problem = |name: &str| LockName::parse("", name).unwrap_err().to_string();
        assert_eq!(problem(""), "name: it is empty; a name has 1 to 256 bytes");
        assert_eq!(problem(&"x".repeat(257)), "name: it has 257 bytes; at most 256 are allowed");
        assert_eq!(
            problem("a\u{7}b"),
            "name: it has a control character (character 2); none are allowed"
        );
        assert_eq!(
            problem("a\u{85}"),
            "name: it has a control character (character 2); none are allowed"
        );
    }

    #[test]
    fn bad_namespaces_are_refused() {
        for namespace in ["A", "a_b", "-a", "a-", "a.b", "a/b", "ä", " ", &"x".repeat(64)] {
            let error = LockName::parse(namespace, "n").unwrap_err();
            assert_eq!(error.field, "namespace", "{namespace}");
        }
        assert!(Namespace::parse(&"9".repeat(63)).is_ok());
    }

    proptest! {
        #[test]
        fn what_parses_reads_back(namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name in "\\PC{1,60}") {
            let lock = LockName::parse(&namespace, &name).unwrap();
            prop_assert_eq!(lock.namespace(), namespace);
            prop_assert_eq!(lock.name(), name);
        }

        #[test]
        fn nothing_panics(namespace in any::<String>(), name in any::<String>()) {
            let _ = LockName::parse(&namespace, &name);
        }
    }
}

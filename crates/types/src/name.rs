//! Names of locks, valid by construction.

use std::{fmt, sync::Arc};

/// Maximum length of a name.
pub const MAX_NAME_BYTES: usize = 256;

/// Namespace of requests that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Rule for namespaces, for messages.
pub const VALID_NAMESPACE: &str = "use 1 to 63 of a-z, 0-9 and '-', with no '-' at either end";

/// Invalid name or other text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidName {
    /// The invalid field.
    pub field: &'static str,
    /// Human-readable problem and allowed values.
    pub problem: String,
}

/// Namespace: a DNS label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Box<str>);

impl Namespace {
    /// Parses a namespace, which must be a DNS label. An empty text means the
    /// default namespace.
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
                problem: format!("{} is not a DNS label; {VALID_NAMESPACE}", quote(text)),
            });
        }
        Ok(())
    }

    /// Returns the label.
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

/// Namespace and name of a lock. Cheap to clone. The names of a namespace are
/// adjacent in the order of names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(
    // `namespace/name`: a namespace has no slash, so the first slash is the separator.
    Arc<str>,
);

impl LockName {
    /// Creates a name from a namespace and a name within it.
    pub fn parse(namespace: &str, name: &str) -> Result<Self, InvalidName> {
        Namespace::check(namespace)?;
        Self::check(name)?;
        let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
        Ok(Self::join(namespace, name))
    }

    /// Creates a name within a namespace.
    pub fn new(namespace: &Namespace, name: &str) -> Result<Self, InvalidName> {
        Self::check(name)?;
        Ok(Self::join(namespace.as_str(), name))
    }

    fn join(namespace: &str, name: &str) -> Self {
        Self([namespace, "/", name].concat().into())
    }

    /// Checks a name within its namespace, without creating it.
    pub fn check(name: &str) -> Result<(), InvalidName> {
        if name.is_empty() {
            return Err(InvalidName {
                field: "name",
                problem: format!("is empty; use 1 to {MAX_NAME_BYTES} bytes"),
            });
        }
        check_text("name", name, MAX_NAME_BYTES)
    }

    /// Returns the lower bound of the names in a namespace that begin with
    /// `prefix`. It need not be the name of a lock.
    #[must_use]
    pub fn prefix_start(namespace: &str, prefix: &str) -> Self {
        Self::join(namespace, prefix)
    }

    /// Returns whether the lock is in this namespace and its name begins with
    /// `prefix`.
    #[must_use]
    pub fn matches_prefix(&self, namespace: &str, prefix: &str) -> bool {
        self.namespace() == namespace && self.name().starts_with(prefix)
    }

    /// Returns the upper bound of the names in a namespace. It is not the name of
    /// a lock.
    #[must_use]
    pub fn namespace_end(namespace: &str) -> Self {
        // '0' follows '/'.
        Self(format!("{namespace}0").into())
    }

    /// Returns the namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name within the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

/// Human-readable form: quoted, with the namespace only if it is not the default.
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

/// Checks a text that will be printed: at most `max_bytes` long, and without
/// control characters, which a terminal would interpret.
pub fn check_text(field: &'static str, text: &str, max_bytes: usize) -> Result<(), InvalidName> {
    if text.len() > max_bytes {
        return Err(InvalidName {
            field,
            problem: format!("has {} bytes; at most {max_bytes} are allowed", text.len()),
        });
    }
    let is_printable_ascii = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_printable_ascii && let Some(at) = text.chars().position(char::is_control) {
        return Err(InvalidName {
            field,
            problem: format!("has a control character (character {})", at + 1),
        });
    }
    Ok(())
}

/// Quotes a text for an error message: escaped, and truncated to 80 characters.
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
    fn unicode_names_and_slashes_are_allowed() {
        for name in ["orders", "a/b/c", "Ü ber", "鎖", &"x".repeat(256)] {
            let lock = LockName::parse("", name).unwrap();
            assert_eq!((lock.namespace(), lock.name()), ("default", name));
        }
    }

    #[test]
    fn invalid_name_error_states_limit() {
        let problem = |name: &str| LockName::parse("", name).unwrap_err().to_string();
        assert_eq!(problem(""), "name: is empty; use 1 to 256 bytes");
        assert_eq!(problem(&"x".repeat(257)), "name: has 257 bytes; at most 256 are allowed");
        assert_eq!(problem("a\u{7}b"), "name: has a control character (character 2)");
        assert_eq!(problem("a\u{85}"), "name: has a control character (character 2)");
    }

    #[test]
    fn invalid_namespaces_are_refused() {
        for namespace in ["A", "a_b", "-a", "a-", "a.b", "a/b", "ä", " ", &"x".repeat(64)] {
            let error = LockName::parse(namespace, "n").unwrap_err();
            assert_eq!(error.field, "namespace", "{namespace}");
        }
        assert!(Namespace::parse(&"9".repeat(63)).is_ok());
    }

    proptest! {
        #[test]
        fn parsed_name_has_its_parts(namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name in "\\PC{1,60}") {
            let lock = LockName::parse(&namespace, &name).unwrap();
            prop_assert_eq!(lock.namespace(), namespace);
            prop_assert_eq!(lock.name(), name);
        }

        #[test]
        fn parse_never_panics(namespace in any::<String>(), name in any::<String>()) {
            let _ = LockName::parse(&namespace, &name);
        }
    }
}

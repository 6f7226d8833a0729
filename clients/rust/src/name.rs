//! The protocol's rules for names, checked before anything is sent: a message
//! that the stream can't carry would take the whole session down with it.

use crate::{Error, pb};

const LONGEST_NAME: usize = 256;
const LONGEST_NAMESPACE: usize = 63;

/// The lock of this name, if the name and the namespace are acceptable.
pub(crate) fn lock_ref(namespace: &str, name: &str) -> Result<pb::LockRef, Error> {
    check_namespace(namespace)?;
    if name.is_empty() {
        return Err(Error::invalid(
            "name",
            format!("invalid lock name \"\": a name has 1 to {LONGEST_NAME} bytes"),
        ));
    }
    if name.len() > LONGEST_NAME {
        return Err(Error::invalid(
            "name",
            format!(
                "invalid lock name: it has {} bytes; the maximum is {LONGEST_NAME}",
                name.len()
            ),
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(
            "name",
            format!("invalid lock name {name:?}: control characters are not allowed"),
        ));
    }
    Ok(pb::LockRef { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// A namespace is a DNS label; empty stands for the default one.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), Error> {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let label = namespace.len() <= LONGEST_NAMESPACE
        && namespace.bytes().all(allowed)
        && !namespace.starts_with('-')
        && !namespace.ends_with('-');
    if label {
        return Ok(());
    }
    let shown: String = namespace.chars().take(LONGEST_NAMESPACE + 1).collect();
    Err(Error::invalid(
        "namespace",
        format!(
            "invalid namespace {shown:?}: use 1 to {LONGEST_NAMESPACE} of a-z, 0-9 and '-', with no '-' at either end"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_field(namespace: &str, name: &str) -> Option<String> {
        match lock_ref(namespace, name) {
            Ok(_) => None,
            Err(Error::Invalid { field, .. }) => Some(field),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_that_the_protocol_allows() {
        for name in ["a", "orders/2024 #7", "Ünïcode", &"x".repeat(256)] {
            assert_eq!(refused_field("default", name), None, "{name}");
        }
        for name in ["", "a\nb", "\u{7f}", "\u{85}", &"x".repeat(257), &"é".repeat(129)] {
            assert_eq!(refused_field("default", name), Some("name".into()), "{name}");
        }
    }

    #[test]
    fn namespaces_are_dns_labels() {
        for namespace in ["", "a", "team-7", "0", &"x".repeat(63)] {
            assert_eq!(refused_field(namespace, "n"), None, "{namespace}");
        }
        for namespace in ["-a", "a-", "A", "a.b", "ä", &"x".repeat(64)] {
            assert_eq!(refused_field(namespace, "n"), Some("namespace".into()), "{namespace}");
        }
    }
}

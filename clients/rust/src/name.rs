//! Validation of names before they are sent. A message that violates the
//! protocol would end the stream and thereby affect the whole session.

use leasehold_types::{
    Namespace,
    name::{InvalidName, LockName, VALID_NAMESPACE, quote},
};

use crate::{Error, pb};

/// Returns the reference to a lock. Fails if its namespace or name is invalid.
pub(crate) fn lock_ref(namespace: &str, name: &str) -> Result<pb::LockRef, Error> {
    check_namespace(namespace)?;
    LockName::check(name).map_err(|InvalidName { field, problem }| {
        Error::invalid(
            field,
            match name {
                "" => format!("invalid lock name: it {problem}"),
                name => format!("invalid lock name {}: it {problem}", quote(name)),
            },
        )
    })?;
    Ok(pb::LockRef { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Checks a namespace; the empty string selects the default one.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), Error> {
    Namespace::check(namespace).map_err(|InvalidName { field, .. }| {
        Error::invalid(field, format!("invalid namespace {}: {VALID_NAMESPACE}", quote(namespace)))
    })
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
    fn lock_names_follow_protocol_limits() {
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

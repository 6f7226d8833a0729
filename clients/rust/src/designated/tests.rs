//! Tests against `clients/designated-locks.json`, which was generated
//! independently and is also used by tests in other languages.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::name;

fn vectors(list: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../../designated-locks.json")).unwrap();
    file[list].as_array().unwrap().clone()
}

fn derived(vector: &Value) -> Result<String, Error> {
    let get = |field: &str| vector[field].as_str().unwrap_or_else(|| panic!("{field}: {vector}"));
    let account = get("account");
    let resource = match get("kind") {
        "table" => Resource::Table { account, table: get("table") },
        "partition" => {
            Resource::Partition { account, table: get("table"), partition: get("partition") }
        }
        "blob" => Resource::Blob { account, container: get("container"), blob: get("blob") },
        "container" => Resource::Container { account, container: get("container") },
        "queue" => Resource::Queue { account, queue: get("queue") },
        "share" => Resource::Share { account, share: get("share") },
        other => panic!("{other}"),
    };
    resource.lock_name()
}

#[test]
fn lock_names_match_test_vectors() {
    let mut seen: HashMap<String, Value> = HashMap::new();
    for vector in vectors("locks") {
        let lock = derived(&vector).unwrap();
        assert_eq!(lock, vector["lock"].as_str().unwrap(), "{vector}");
        assert!(name::lock_ref("", &lock).is_ok(), "{lock}");
        if let Some(other) = seen.insert(lock, vector.clone()) {
            panic!("{other} and {vector} have one lock");
        }
    }
}

#[test]
fn invalid_names_are_refused() {
    for vector in vectors("refused") {
        match derived(&vector) {
            Err(Error::Invalid { field, .. }) => assert_eq!(field, vector["field"], "{vector}"),
            other => panic!("{vector}: {other:?}"),
        }
    }
}

#[test]
fn errors_do_not_quote_invalid_names() {
    let secret = "AccountName=acme;AccountKey=secret";
    let (account, container) = ("acme", secret);
    for resource in [
        Resource::Queue { account: secret, queue: "jobs" },
        Resource::Table { account, table: secret },
        Resource::Container { account, container },
        Resource::Blob { account, container, blob: "b" },
        Resource::Queue { account, queue: secret },
        Resource::Share { account, share: secret },
    ] {
        let error = resource.lock_name().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}

/// Short and long keys with characters that need an escape or resemble one.
fn key() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c%/~ é]{0,6}", "[%2F/]{0,5}", "[x%é~]{180,240}"]
}

fn resource(kind: u8, key: &str) -> Resource<'_> {
    let account = "acme";
    match kind {
        0 => Resource::Partition { account, table: "orders", partition: key },
        1 => Resource::Partition { account, table: "orders2", partition: key },
        2 => Resource::Blob { account, container: "orders", blob: key },
        _ => Resource::Blob { account, container: "table", blob: key },
    }
}

proptest! {
    #[test]
    fn different_resources_have_different_locks(
        first in (0_u8..4, key()),
        second in (0_u8..4, key()),
    ) {
        let locks = (resource(first.0, &first.1).lock_name(), resource(second.0, &second.1).lock_name());
        if let (Ok(one), Ok(other)) = locks {
            prop_assert_eq!(one == other, first == second, "{} {}", one, other);
            prop_assert!(name::lock_ref("", &one).is_ok(), "{}", one);
        }
    }
}

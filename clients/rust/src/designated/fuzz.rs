//! Fuzz test with arbitrary names of resources.

use std::collections::HashMap;

use leasehold_fuzz::Fuzz;

use super::*;
use crate::name;

/// Stands for a secret.
const SECRET: &str = "aHVzaGh1c2g";

const WORDS: &[&str] =
    &[SECRET, "acme", "orders", "table", "container", "$root", "$web", "%2F", "~", "/", "-", "\n"];

/// Number of resources whose lock names are compared.
const MAX_COMPARED: usize = 20_000;

#[test]
fn lock_names_are_unique_and_errors_hide_secrets() {
    let mut seen = HashMap::new();
    Fuzz::new("designated").words(WORDS).max_bytes(1500).run(|input| {
        // One line each: kind, account, resource, and partition or blob.
        let text = String::from_utf8_lossy(input);
        let mut lines = text.splitn(4, '\n');
        let mut line = || lines.next().unwrap_or_default();
        let (kind, account, one, rest) = (line(), line(), line(), line());
        let resource = match kind {
            "table" => Resource::Table { account, table: one },
            "partition" => Resource::Partition { account, table: one, partition: rest },
            "blob" => Resource::Blob { account, container: one, blob: rest },
            "container" => Resource::Container { account, container: one },
            "queue" => Resource::Queue { account, queue: one },
            "share" => Resource::Share { account, share: one },
            _ => return "no kind".to_owned(),
        };
        match resource.lock_name() {
            Ok(lock) => {
                assert!(name::lock_ref("", &lock).is_ok() && lock.is_ascii(), "{lock}");
                let rest = if matches!(kind, "partition" | "blob") { rest } else { "" };
                let folded =
                    [kind, &*account.to_lowercase(), &*one.to_lowercase(), rest].join("\n");
                if seen.len() < MAX_COMPARED {
                    let other = seen.entry(lock.clone()).or_insert_with(|| folded.clone());
                    assert_eq!(*other, folded, "both have the lock {lock}");
                }
                format!("{kind} {}", lock.contains('~'))
            }
            Err(Error::Invalid { field, message }) => {
                assert!(!message.contains(SECRET), "{message}");
                format!("{kind} {field} {message}")
            }
            Err(error) => panic!("{error}"),
        }
    });
}

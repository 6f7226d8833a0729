//! The statements of `guard_sql`, in real databases: SQLite, which is built in,
//! and PostgreSQL where it is installed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "says what was not tested")]

mod postgres;
mod sqlite;

/// What is asserted after a race: each entry has the token of who wrote it, in
/// the order in which they were written.
fn none_is_late(tokens: &[i64], written: usize) {
    assert_eq!(tokens.len(), written, "each write that was confirmed is there, and no other");
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(tokens.last(), Some(&8));
    let mut different = tokens.to_vec();
    different.dedup();
    assert!(different.len() > 4, "the old and the new did not meet: {tokens:?}");
}

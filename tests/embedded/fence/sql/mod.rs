//! The statements of `leasehold_fence::sql`, in real databases: SQLite, which is built in,
//! and PostgreSQL where it is installed.
#![allow(clippy::print_stderr, reason = "says what was not tested")]

mod postgres;
mod sqlite;

/// A race: sixteen writers, each of eight tokens twice, so that there are racers
/// with the same too. A token comes when the one before has written this often,
/// and those of before go on until they are refused. So all of them meet.
const BEFORE: i64 = 3;

/// How often the last token writes.
const LAST: usize = 20;

/// What is asserted after a race: each entry has the token of who wrote it, in
/// the order in which they were written.
fn none_is_late(tokens: &[i64], written: usize) {
    assert_eq!(tokens.len(), written, "each write that was confirmed is there, and no other");
    assert!(tokens.is_sorted(), "{tokens:?}");
    let mut different = tokens.to_vec();
    different.dedup();
    assert_eq!(different, [1, 2, 3, 4, 5, 6, 7, 8]);
}

//! The statements of `leasehold_fence::sql`, in real databases: SQLite, which is built in,
//! and PostgreSQL, if it is installed.

#![allow(clippy::print_stderr, reason = "reports skipped tests")]

mod postgres;
mod sqlite;

/// Number of writes by a token before the writers of the next token start. A race has
/// sixteen writers: eight tokens, two writers each. A writer continues until it is refused,
/// so that writers with different tokens run concurrently.
const WRITES_BEFORE_NEXT: i64 = 3;

/// Number of writes by the highest token.
const LAST_WRITES: usize = 20;

/// Checks the journal after a race. Its entries have the writers' tokens, in the order of
/// the writes.
fn assert_tokens_increase(tokens: &[i64], written: usize) {
    assert_eq!(tokens.len(), written, "the journal has exactly the confirmed writes");
    assert!(tokens.is_sorted(), "{tokens:?}");
    let mut different = tokens.to_vec();
    different.dedup();
    assert_eq!(different, [1, 2, 3, 4, 5, 6, 7, 8]);
}

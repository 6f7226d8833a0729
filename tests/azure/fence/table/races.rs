//! Concurrent writers with old and new tokens. The assertions use the data only.

use leasehold_fence::table::{Conflict, Error, FencedPartition, Table, Transaction};
use serde::{Deserialize, Serialize};

use super::{fenced_table, table};

/// Entry of the journal, or its last entry in the row "last".
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    number: i64,
    token: i64,
}

fn row(number: i64) -> String {
    format!("entry-{number:06}")
}

/// Returns a transaction that appends an entry. The row "last" contains the last entry
/// and must not have changed since it was read. The order of the entries is therefore
/// the order of the writes.
fn append(last: Option<&leasehold_fence::table::Entity<Entry>>, token: u64) -> Transaction {
    let number = last.map_or(1, |last| last.value.number + 1);
    let entry = Entry { number, token: token as i64 };
    let end = match last {
        Some(last) => Transaction::new().replace_if("last", &entry, &last.etag),
        None => Transaction::new().insert("last", &entry),
    };
    end.insert(row(number), &entry)
}

async fn journal(table: &Table) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some(entry) = table.get("p", &row(entries.len() as i64 + 1)).await.unwrap() {
        entries.push(entry.value);
    }
    entries
}

/// Appends entries until it is fenced or has written `max_writes`.
async fn append_entries(partition: &FencedPartition, token: u64, max_writes: usize) -> usize {
    let mut written = 0;
    while written < max_writes {
        let last = partition.get::<Entry>("last").await.unwrap();
        match partition.commit(&append(last.as_ref(), token)).await {
            Ok(_) => written += 1,
            Err(Error::Conflict { conflict, .. }) if conflict != Conflict::Missing => {}
            Err(Error::Fenced { newer, .. }) => {
                assert!(newer.unwrap().get() > token);
                break;
            }
            Err(other) => panic!("{other}"),
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_write_is_applied_after_newer_fence() {
    let table = table("race").await;
    // Each of eight tokens is used twice, so that some writers share a token.
    let writers: Vec<_> = (0..16_u64)
        .map(|writer| {
            let (table, token) = (table.clone(), writer / 2 + 1);
            tokio::spawn(async move {
                // Starts when the writers with the previous token have begun to write.
                while latest(&table).await < token - 1 {
                    tokio::task::yield_now().await;
                }
                match fenced_table(&table, token).partition("p").await {
                    Ok(partition) => append_entries(&partition, token, 30).await,
                    Err(Error::Fenced { .. }) => 0,
                    Err(other) => panic!("{other}"),
                }
            })
        })
        .collect();
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    let journal = journal(&table).await;
    assert_eq!(journal.len(), written, "exactly the confirmed writes are applied");
    let mut tokens: Vec<_> = journal.iter().map(|entry| entry.token).collect();
    tokens.dedup();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6, 7, 8], "no write follows one with a higher token");
}

/// Reads the token of the last entry.
async fn latest(table: &Table) -> u64 {
    table.get::<Entry>("p", "last").await.unwrap().map_or(0, |last| last.value.token as u64)
}

/// Negative test: without fences, the same journal has decreasing tokens.
#[tokio::test]
async fn without_fence_older_write_is_applied() {
    let table = table("nofence").await;
    for token in [1, 2, 1] {
        let last = table.get::<Entry>("p", "last").await.unwrap();
        table.commit("p", &append(last.as_ref(), token)).await.unwrap();
    }
    let tokens: Vec<_> = journal(&table).await.iter().map(|entry| entry.token).collect();
    assert_eq!(tokens, [1, 2, 1]);
}

/// All holders install their fences concurrently. One fence remains, with the highest
/// token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn highest_of_sixteen_concurrent_fences_remains() {
    let table = table("rush").await;
    let holders: Vec<_> = (1..=16_u64)
        .rev()
        .map(|token| {
            let table = table.clone();
            tokio::spawn(async move { fenced_table(&table, token).partition("p").await.map(drop) })
        })
        .collect();
    for (holder, token) in holders.into_iter().zip((1..=16).rev()) {
        match holder.await.unwrap() {
            Ok(()) => {}
            Err(Error::Fenced { newer, .. }) => assert!(newer.unwrap().get() > token),
            Err(other) => panic!("{other}"),
        }
    }
    for token in 1..=16 {
        let fence = format!("~leasehold.fence.{token:020}");
        let exists = table.get::<serde_json::Value>("p", &fence).await.unwrap().is_some();
        assert_eq!(exists, token == 16, "{token}");
    }
}

//! Rows of the fence that a program has deleted or restored.

use leasehold_client::Token;
use leasehold_fence::table::{Error, Table, Transaction, Written};
use serde_json::{Value, json};

use super::{access::raw, amount, fenced_table, held, stock, table};

const HEAD: &str = "~leasehold.head";

fn fence_row(token: u64) -> String {
    format!("~leasehold.fence.{token:020}")
}

fn path(table: &Table, row: &str) -> String {
    format!("{}(PartitionKey='p',RowKey='{row}')", table.name())
}

async fn delete(table: &Table, row: &str) {
    raw("DELETE", &path(table, row), None).await;
}

async fn insert_fence(table: &Table, token: u64) {
    let row = json!({ "PartitionKey": "p", "RowKey": fence_row(token), "Writes": "" });
    raw("POST", table.name(), Some(&row)).await;
}

async fn fence_exists(table: &Table, token: u64) -> bool {
    table.get::<Value>("p", &fence_row(token)).await.unwrap().is_some()
}

fn change() -> Transaction {
    Transaction::new().upsert("a", &stock(1))
}

#[tokio::test]
async fn older_token_does_not_take_over_without_head() {
    let table = table("headlessolder").await;
    let newer = held(&table, 9).await;
    delete(&table, HEAD).await;
    let error = fenced_table(&table, 5).partition("p").await.unwrap_err();
    let Error::Fenced { newer: by, written: Written::No, .. } = error else { panic!("{error:?}") };
    assert_eq!(by, Some(Token::new(9)));
    newer.commit(&change()).await.unwrap();
}

#[tokio::test]
async fn invalid_fence_row_needs_operator() {
    let table = table("nofencerow").await;
    let row = "~leasehold.fence.0000000000000000000x";
    let row = json!({ "PartitionKey": "p", "RowKey": row, "Writes": "" });
    raw("POST", table.name(), Some(&row)).await;
    let error = fenced_table(&table, 5).partition("p").await.unwrap_err();
    assert!(matches!(error, Error::NeedsOperator { .. }), "{error:?}");
}

/// There are more fences than one page returns or one transaction deletes.
#[tokio::test]
async fn all_old_fences_are_removed() {
    let table = table("manyfences").await;
    for token in 1..=150 {
        insert_fence(&table, token).await;
    }
    let holder = held(&table, 200).await;
    for token in 1..=150 {
        assert!(!fence_exists(&table, token).await, "{token}");
    }
    holder.commit(&change()).await.unwrap();
}

/// The fence of the head's token is missing, and an older one was restored, for example
/// from a backup.
#[tokio::test]
async fn restored_old_fence_is_removed() {
    let table = table("cameback").await;
    held(&table, 5).await;
    delete(&table, &fence_row(5)).await;
    insert_fence(&table, 3).await;
    held(&table, 6).await;
    assert!(!fence_exists(&table, 3).await);
    assert!(fence_exists(&table, 6).await);
}

#[tokio::test]
async fn fence_newer_than_head_is_respected() {
    let table = table("newerfence").await;
    held(&table, 5).await;
    delete(&table, &fence_row(5)).await;
    insert_fence(&table, 9).await;
    let error = fenced_table(&table, 6).partition("p").await.unwrap_err();
    assert!(
        matches!(error, Error::Fenced { newer, .. } if newer == Some(Token::new(9))),
        "{error:?}"
    );
    assert!(fence_exists(&table, 9).await);
}

/// Without a higher token in the head, the error is not `Fenced`.
#[tokio::test]
async fn missing_fence_does_not_imply_newer_holder() {
    let table = table("noproof").await;
    let holder = held(&table, 5).await;
    delete(&table, &fence_row(5)).await;
    let put = |token: Value| {
        let (table, head) = (table.clone(), json!({ "Token": token, "Lock": "default/x" }));
        async move { raw("PUT", &path(&table, HEAD), Some(&head)).await }
    };
    let mut errors = Vec::new();
    put(json!(3)).await;
    errors.push((holder.commit(&change()).await.unwrap_err(), "contradict"));
    put(json!("five")).await;
    errors.push((holder.commit(&change()).await.unwrap_err(), "invalid head"));
    delete(&table, HEAD).await;
    errors.push((holder.commit(&change()).await.unwrap_err(), "are gone"));
    for (error, hint) in errors {
        assert!(matches!(error, Error::NeedsOperator { .. }), "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
    }
    assert_eq!(amount(&table, "a").await, None);
}

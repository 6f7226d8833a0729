//! Rows of the guard that somebody has deleted or brought back.

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

async fn stands(table: &Table, token: u64) -> bool {
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

/// More than there are in a page, or than one transaction can delete.
#[tokio::test]
async fn all_old_fences_are_removed() {
    let table = table("manyfences").await;
    for token in 1..=150 {
        insert_fence(&table, token).await;
    }
    let holder = held(&table, 200).await;
    for token in 1..=150 {
        assert!(!stands(&table, token).await, "{token}");
    }
    holder.commit(&change()).await.unwrap();
}

/// The head's own fence is missing, and an older one is back, from a backup
/// perhaps.
#[tokio::test]
async fn restored_old_fence_is_removed() {
    let table = table("cameback").await;
    held(&table, 5).await;
    delete(&table, &fence_row(5)).await;
    insert_fence(&table, 3).await;
    held(&table, 6).await;
    assert!(!stands(&table, 3).await);
    assert!(stands(&table, 6).await);
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
    assert!(stands(&table, 9).await);
}

/// Nobody is said to have come who has not.
#[tokio::test]
async fn missing_fence_does_not_imply_newer_holder() {
    let table = table("noproof").await;
    let holder = held(&table, 5).await;
    delete(&table, &fence_row(5)).await;
    let put = |token: Value| {
        let (table, head) = (table.clone(), json!({ "Token": token, "Lock": "default/x" }));
        async move { raw("PUT", &path(&table, HEAD), Some(&head)).await }
    };
    let mut told = Vec::new();
    put(json!(3)).await;
    told.push((holder.commit(&change()).await.unwrap_err(), "contradict"));
    put(json!("five")).await;
    told.push((holder.commit(&change()).await.unwrap_err(), "can't be read"));
    delete(&table, HEAD).await;
    told.push((holder.commit(&change()).await.unwrap_err(), "are gone"));
    for (error, hint) in told {
        assert!(matches!(error, Error::NeedsOperator { .. }), "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
    }
    assert_eq!(amount(&table, "a").await, None);
}

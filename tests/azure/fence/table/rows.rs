//! Reads, writes and queries of rows, with and without a fence.

use std::collections::BTreeMap;

use leasehold_client::Token;
use leasehold_fence::table::{
    Binary, Conflict, DateTime, Error, Guid, OffsetDateTime, Transaction, Uuid,
};
use serde::{Deserialize, Serialize};

use super::{Stock, amount, held, stock, table};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Typed {
    small: i32,
    large: i64,
    whole: f64,
    infinite: f64,
    text: String,
    yes: bool,
    id: Guid,
    at: DateTime,
    bytes: Binary,
    absent: Option<i32>,
}

fn typed() -> Typed {
    Typed {
        small: i32::MIN,
        large: (1 << 53) + 1,
        whole: 3.0,
        infinite: f64::INFINITY,
        text: "O'Hara {\"a\":\n1} Zürich 鎖".to_owned(),
        yes: true,
        id: Guid(Uuid::from_u128(1 << 100)),
        at: DateTime::new(OffsetDateTime::from_unix_timestamp(1_763_000_000).unwrap()),
        bytes: Binary((0..=255).collect()),
        absent: None,
    }
}

#[tokio::test]
async fn all_types_round_trip_in_row_and_query() {
    let table = table("types").await;
    let partition = held(&table, 1).await;
    partition.commit(&Transaction::new().insert("r", &typed())).await.unwrap();
    let row = partition.get::<Typed>("r").await.unwrap().unwrap();
    assert_eq!(row.value, typed());
    let rows = partition.query().await.unwrap().all::<Typed>().await.unwrap();
    assert_eq!(rows, [row]);
}

/// Makes the same changes by single calls and by one batch.
#[tokio::test]
async fn each_change_kind_has_its_effect() {
    let table = table("kinds").await;
    let partition = held(&table, 1).await;
    for fenced in [false, true] {
        let commit = async |transaction: Transaction| {
            if fenced {
                partition.commit(&transaction).await
            } else {
                table.commit("p", &transaction).await
            }
        };
        let row = if fenced { "a row, fenced" } else { "a'row" };
        let new = Transaction::new;
        let fails = async |transaction: Transaction, expected: Conflict| match commit(transaction)
            .await
            .unwrap_err()
        {
            Error::Conflict { place, conflict } => {
                assert_eq!(conflict, expected, "{place}");
                assert_eq!(place.row.as_deref(), Some(row));
                assert_eq!(place.token, fenced.then_some(Token::new(1)));
            }
            other => panic!("{other}"),
        };
        fails(new().replace(row, &stock(1)), Conflict::Missing).await;
        fails(new().merge(row, &stock(1)), Conflict::Missing).await;
        fails(new().delete(row), Conflict::Missing).await;
        let first = commit(new().insert(row, &stock(1))).await.unwrap();
        let first = first.etag(row).unwrap();
        fails(new().insert(row, &stock(2)), Conflict::Exists).await;
        let second = commit(new().replace_if(row, &stock(3), first)).await.unwrap();
        let second = second.etag(row).unwrap();
        assert_ne!(first, second);
        assert_eq!(partition.get::<Stock>(row).await.unwrap().unwrap().etag, *second);
        fails(new().replace_if(row, &stock(4), first), Conflict::Changed).await;
        fails(new().merge_if(row, &stock(4), first), Conflict::Changed).await;
        fails(new().delete_if(row, first), Conflict::Changed).await;
        assert_eq!(amount(&table, row).await, Some(3));
        let other = BTreeMap::from([("other", "x")]);
        commit(new().merge_if(row, &other, second)).await.unwrap();
        commit(new().upsert_merge(row, &BTreeMap::from([("third", true)]))).await.unwrap();
        let all = table.get::<BTreeMap<String, serde_json::Value>>("p", row).await.unwrap();
        let names: Vec<_> = all.unwrap().value.into_keys().collect();
        assert_eq!(names, ["amount", "other", "third"]);
        commit(new().upsert(row, &stock(5))).await.unwrap();
        let all = table.get::<BTreeMap<String, serde_json::Value>>("p", row).await.unwrap();
        assert_eq!(all.unwrap().value.into_keys().collect::<Vec<_>>(), ["amount"]);
        commit(new().delete(row)).await.unwrap();
        assert_eq!(amount(&table, row).await, None);
        commit(new().upsert_merge(row, &stock(6))).await.unwrap();
        commit(new().merge(row, &stock(7))).await.unwrap();
        commit(new().replace(row, &stock(8))).await.unwrap();
        assert_eq!(amount(&table, row).await, Some(8));
    }
}

#[tokio::test]
async fn transaction_is_atomic() {
    let table = table("whole").await;
    let partition = held(&table, 1).await;
    partition.commit(&Transaction::new().insert("b", &stock(1))).await.unwrap();
    let new =
        Transaction::new().insert("a", &stock(1)).insert("b", &stock(2)).insert("c", &stock(3));
    for fenced in [true, false] {
        let error = if fenced {
            partition.commit(&new).await.unwrap_err()
        } else {
            table.commit("p", &new).await.unwrap_err()
        };
        // The inner response identifies the row.
        let Error::Conflict { place, conflict: Conflict::Exists } = error else {
            panic!("{error}")
        };
        assert_eq!(place.row.as_deref(), Some("b"));
        let amounts =
            [amount(&table, "a").await, amount(&table, "b").await, amount(&table, "c").await];
        assert_eq!(amounts, [None, Some(1), None]);
    }
    partition.commit(&Transaction::new().insert("a", &stock(5)).delete("b")).await.unwrap();
    assert_eq!([amount(&table, "a").await, amount(&table, "b").await], [Some(5), None]);
}

#[tokio::test]
async fn query_pages_exclude_fence_rows() {
    let table = table("pages").await;
    let (here, there) = (held(&table, 1).await, super::fenced_table(&table, 1));
    let there = there.partition("O'Hara & q").await.unwrap();
    let fill = (0..25).fold(Transaction::new(), |all, n| all.insert(format!("r{n:02}"), &stock(n)));
    here.commit(&fill).await.unwrap();
    there.commit(&fill).await.unwrap();
    let mut query = here.query().await.unwrap().page_size(10);
    let mut pages = Vec::new();
    while let Some(page) = query.next_page::<Stock>().await.unwrap() {
        pages.push(page.len());
    }
    assert_eq!(pages.iter().sum::<usize>(), 25, "{pages:?}");
    assert!(pages.len() >= 3, "{pages:?}");
    assert_eq!(query.next_page::<Stock>().await.unwrap(), None);
    let large = there.query().await.unwrap().filter("amount ge 20L or amount eq 3L");
    let large: Vec<_> = large.all::<Stock>().await.unwrap();
    let amounts: Vec<_> = large.iter().map(|row| row.value.amount).collect();
    assert_eq!(amounts, [3, 20, 21, 22, 23, 24]);
    assert!(large.iter().all(|row| row.partition == "O'Hara & q"));
    assert_eq!(table.query(None).page_size(7).all::<Stock>().await.unwrap().len(), 50);
}

#[tokio::test]
async fn creating_existing_table_succeeds() {
    let table = table("again").await;
    table.commit("p", &Transaction::new().insert("r", &stock(1))).await.unwrap();
    table.create().await.unwrap();
    assert_eq!(amount(&table, "r").await, Some(1));
}

/// A filter can't extend a query to another partition.
#[tokio::test]
async fn rows_of_another_partition_are_refused() {
    let table = table("escape").await;
    held(&table, 1).await.commit(&Transaction::new().insert("a", &stock(1))).await.unwrap();
    table.commit("q", &Transaction::new().insert("b", &stock(2))).await.unwrap();
    let filter = "amount eq 1L) or (PartitionKey ne 'p'";
    let error = table.query(Some("p")).filter(filter).all::<Stock>().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("another partition"), "{error}");
    let both = table.query(None).filter("amount ge 1L").all::<Stock>().await.unwrap();
    assert_eq!(both.len(), 2);
}

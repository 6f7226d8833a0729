//! Takeovers by newer holders, and fences that are missing or invalid.

use leasehold_client::Token;
use leasehold_fence::{
    LockToken,
    table::{Error, Table, Transaction, Written},
};
use leasehold_test_support::{
    azurite::Azurite,
    proxy::{Fault, Match, Proxy},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{Stock, amount, fenced_table, held, stock, table};

/// Reads the head row and all fence rows.
async fn fence_rows(table: &Table) -> Vec<(String, BTreeMap<String, Value>)> {
    let head = table.get::<BTreeMap<String, Value>>("p", "~leasehold.head").await.unwrap().unwrap();
    let mut rows = vec![(head.row, head.value)];
    for token in 1..=9 {
        let row = format!("~leasehold.fence.{token:020}");
        if let Some(fence) = table.get::<BTreeMap<String, Value>>("p", &row).await.unwrap() {
            rows.push((fence.row, fence.value));
        }
    }
    rows
}

fn is_fenced(error: &Error, token: u64, by: u64) {
    let Error::Fenced { place, newer, written } = error else { panic!("{error:?}") };
    assert_eq!(
        (place.token, *newer, *written),
        (Some(Token::new(token)), Some(Token::new(by)), Written::No)
    );
    assert_eq!(place.partition.as_deref(), Some("p"));
    let text = error.to_string();
    for part in ["partition \"p\"", &format!("token {token}"), &format!("token {by}"), "Stop"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn fenced_holder_writes_nothing() {
    let table = table("overtaken").await;
    let old = held(&table, 3).await;
    old.commit(&Transaction::new().insert("a", &stock(1))).await.unwrap();
    let new = held(&table, 5).await;
    for transaction in [
        Transaction::new().upsert("a", &stock(9)),
        Transaction::new().insert("b", &stock(9)).delete("a"),
        // Invalid in another way, too.
        Transaction::new().replace("not there", &stock(9)),
    ] {
        is_fenced(&old.commit(&transaction).await.unwrap_err(), 3, 5);
    }
    assert_eq!(amount(&table, "a").await, Some(1));
    assert_eq!(amount(&table, "b").await, None);
    is_fenced(&fenced_table(&table, 4).partition("p").await.unwrap_err(), 4, 5);
    is_fenced(&fenced_table(&table, 3).partition("p").await.unwrap_err(), 3, 5);
    new.commit(&Transaction::new().replace("a", &stock(2))).await.unwrap();
    assert_eq!(new.get::<Stock>("a").await.unwrap().unwrap().value, stock(2));
    let rows = fence_rows(&table).await;
    assert_eq!(rows.len(), 2, "one head and one fence: {rows:?}");
    assert_eq!(rows[0].1["Token"], 5);
    assert_eq!(rows[0].1["Lock"], "default/azure/devstoreaccount1/table/x");
    assert_eq!(rows[1].0, "~leasehold.fence.00000000000000000005");
}

#[tokio::test]
async fn unfenced_write_is_applied() {
    let table = table("unfenced").await;
    held(&table, 5).await.commit(&Transaction::new().insert("a", &stock(1))).await.unwrap();
    table.commit("p", &Transaction::new().replace("a", &stock(9))).await.unwrap();
    assert_eq!(amount(&table, "a").await, Some(9));
}

#[tokio::test]
async fn partitions_are_fenced_on_first_use() {
    let table = table("partitions").await;
    let (old, new) = (fenced_table(&table, 1), fenced_table(&table, 2));
    let change = Transaction::new().upsert("r", &stock(1));
    old.partition("p").await.unwrap();
    old.partition("q").await.unwrap();
    new.partition("p").await.unwrap();
    old.partition("q").await.unwrap().commit(&change).await.unwrap();
    is_fenced(&old.partition("p").await.unwrap().commit(&change).await.unwrap_err(), 1, 2);
    new.partition("q").await.unwrap();
    assert!(old.partition("q").await.unwrap().commit(&change).await.is_err());
}

#[tokio::test]
async fn holders_with_same_token_share_fence() {
    let table = table("shared").await;
    let writers = (0..8).map(|writer| {
        let table = table.clone();
        tokio::spawn(async move {
            let partition = held(&table, 7).await;
            for n in 0..5 {
                let row = format!("{writer}-{n}");
                let insert = Transaction::new().insert(row, &stock(n));
                // A commit that fails with a conflict was not applied.
                while let Err(error) = partition.commit(&insert).await {
                    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(table.query(Some("p")).all::<Stock>().await.unwrap().len(), 40);
}

#[tokio::test]
async fn another_lock_is_refused() {
    let table = table("anotherlock").await;
    held(&table, 5).await;
    for fence in [
        LockToken::new("", "orders", Token::new(9)),
        LockToken::new("team", fence_name(), Token::new(9)),
    ] {
        let error = table.fenced(fence).partition("p").await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("\"default/azure/devstoreaccount1/table/x\""), "{text}");
    }
    let error = table
        .fenced(LockToken::new("", fence_name(), Token::new(0)))
        .partition("p")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not a token"), "{error}");
}

fn fence_name() -> String {
    super::lock_token(1).lock().to_owned()
}

#[tokio::test]
async fn unreadable_head_is_not_changed() {
    let table = table("damaged").await;
    let holder = held(&table, 5).await;
    let head = "~leasehold.head";
    // The fenced API would refuse this write.
    put(head, &json!({ "Token": "five", "Lock": "default/x" })).await;
    let error = fenced_table(&table, 6).partition("p").await.unwrap_err();
    assert!(matches!(error, Error::NeedsOperator { .. }), "{error:?}");
    assert!(error.to_string().contains("~leasehold.head"), "{error}");
    // The holder's own fence is still valid.
    holder.commit(&Transaction::new().insert("a", &stock(1))).await.unwrap();
    async fn put(row: &str, value: &Value) {
        let url = format!("damaged(PartitionKey='p',RowKey='{row}')");
        super::access::raw("PUT", &url, Some(value)).await;
    }
}

#[tokio::test]
async fn deleted_fence_stops_its_holder_only() {
    let table = table("deleted").await;
    let holder = held(&table, 5).await;
    let row = "~leasehold.fence.00000000000000000005";
    super::access::raw("DELETE", &format!("deleted(PartitionKey='p',RowKey='{row}')"), None).await;
    let change = Transaction::new().upsert("a", &stock(1));
    let error = holder.commit(&change).await.unwrap_err();
    assert!(matches!(error, Error::NeedsOperator { .. }), "{error:?}");
    let error = fenced_table(&table, 5).partition("p").await.unwrap_err();
    assert!(matches!(error, Error::NeedsOperator { .. }), "{error:?}");
    held(&table, 6).await.commit(&change).await.unwrap();
    is_fenced(&holder.commit(&change).await.unwrap_err(), 5, 6);
}

#[tokio::test]
async fn deleted_head_leaves_no_fence_behind() {
    let table = table("headless").await;
    let old = held(&table, 5).await;
    let head = "headless(PartitionKey='p',RowKey='~leasehold.head')";
    super::access::raw("DELETE", head, None).await;
    let change = Transaction::new().upsert("a", &stock(1));
    let error = fenced_table(&table, 5).partition("p").await.unwrap_err();
    assert!(matches!(error, Error::NeedsOperator { .. }), "{error:?}");
    let new = held(&table, 6).await;
    is_fenced(&old.commit(&change).await.unwrap_err(), 5, 6);
    new.commit(&change).await.unwrap();
}

/// Creates a table with the head of token 5, but without its fence.
async fn without_fence(name: &str) -> Table {
    let table = table(name).await;
    held(&table, 5).await;
    let row = "~leasehold.fence.00000000000000000005";
    super::access::raw("DELETE", &format!("{name}(PartitionKey='p',RowKey='{row}')"), None).await;
    table
}

/// A fence was deleted. While a newer holder detects that, another holder installs its
/// fence, which the newer holder must delete.
#[tokio::test]
async fn missing_fence_does_not_hide_concurrent_fence() {
    let direct = without_fence("hides").await;
    let proxy = Proxy::start(Azurite::shared().table_port());
    let table = Table::new(&super::account(proxy.port()), "hides").unwrap();
    proxy.when(Match::any().container("$batch")).times(1).then(Fault::HoldResponse);
    let (newest, between) = tokio::join!(held(&table, 9), async {
        proxy.wait_for(|seen| seen.fault.is_some() && seen.upstream_status.is_some()).await;
        let between = held(&direct, 7).await;
        proxy.release_held();
        between
    });
    let change = Transaction::new().upsert("a", &stock(1));
    is_fenced(&between.commit(&change).await.unwrap_err(), 7, 9);
    newest.commit(&change).await.unwrap();
}

/// As above, but the holder with the lower token is delayed, and its transaction
/// arrives after the other holder's.
#[tokio::test]
async fn late_fence_is_not_installed() {
    let direct = without_fence("comeslate").await;
    let proxy = Proxy::start(Azurite::shared().table_port());
    let table = super::table_via_proxy(&proxy, "comeslate").await;
    // The first batch fails because the old fence is missing. The second batch does
    // not delete it.
    proxy.when(Match::any().container("$batch")).nth(2).times(1).then(Fault::Hold);
    let delayed = fenced_table(&table, 6);
    let (error, newer) = tokio::join!(delayed.partition("p"), async {
        proxy.wait_for(|seen| seen.fault.is_some()).await;
        held(&direct, 7).await
    });
    is_fenced(&error.unwrap_err(), 6, 7);
    proxy.release_held();
    proxy.wait_for(|seen| seen.fault.is_some() && seen.upstream_status.is_some()).await;
    assert_eq!(fence_rows(&direct).await[0].1["Token"], 7);
    newer.commit(&Transaction::new().upsert("a", &stock(1))).await.unwrap();
}

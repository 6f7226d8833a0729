//! Errors of invalid calls, and checks before anything is sent.

use leasehold_fence::{
    azure::Account,
    table::{Binary, Error, MAX_CHANGES, Table, Transaction},
};
use leasehold_test_support::{
    azurite::Azurite,
    proxy::{Match, Proxy},
};
use serde::Serialize;
use serde_json::json;

use super::{
    Stock, account, amount, fenced_table, held, lock_token, stock, table, table_via_proxy,
};

fn many(count: usize) -> Transaction {
    (0..count).fold(Transaction::new(), |all, n| all.insert(format!("r{n}"), &stock(1)))
}

#[derive(Serialize)]
struct Large {
    a: Binary,
    b: Binary,
    c: Binary,
    d: Binary,
}

/// Creates a value of about this many KiB in the request, in Base64.
fn large(kib: usize) -> Large {
    let part = || Binary(vec![7; kib * 1024 * 3 / 4 / 4]);
    Large { a: part(), b: part(), c: part(), d: part() }
}

#[track_caller]
/// Asserts that the error is `Invalid` and contains the hints.
fn assert_invalid(error: &Error, hints: &[&str]) {
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    for hint in hints {
        assert!(error.to_string().contains(hint), "{error}");
    }
}

#[tokio::test]
async fn invalid_requests_are_refused_locally() {
    let proxy = Proxy::start(Azurite::shared().table_port());
    let table = table_via_proxy(&proxy, "limits").await;
    let partition = held(&table, 17).await;
    proxy.clear();
    let four_mib =
        (0..14).fold(Transaction::new(), |all, n| all.upsert(format!("r{n}"), &large(300)));
    for (transaction, hints) in [
        (many(MAX_CHANGES + 1), ["99 changes", "maximum is 98", "token 17"]),
        (many(101), ["101 changes", "table \"limits\"", "partition \"p\""]),
        (four_mib.clone(), ["maximum is 4 MiB", "Split it", "token 17"]),
        (Transaction::new().insert("a?b", &stock(1)), ["'?'", "row \"a?b\"", "invalid row key"]),
        (
            Transaction::new().insert("~leasehold.x", &stock(1)),
            ["reserved for the fence", "~leasehold.", "p"],
        ),
        (Transaction::new().delete("a").delete("a"), ["changed twice", "row \"a\"", "token 17"]),
        (Transaction::new().insert("a", &json!({"n": {}})), ["n: ", "plain values", "row \"a\""]),
    ] {
        assert_invalid(&partition.commit(&transaction).await.unwrap_err(), &hints);
    }
    assert_invalid(&table.commit("p", &four_mib).await.unwrap_err(), &["maximum is 4 MiB"]);
    assert_invalid(
        &fenced_table(&table, 17).partition("a\\b").await.unwrap_err(),
        &["partition key", "'\\\\'"],
    );
    assert_invalid(&partition.get::<Stock>("a#b").await.unwrap_err(), &["'#'"]);
    assert_invalid(
        &partition.get::<Stock>("~leasehold.head").await.unwrap_err(),
        &["reserved for the fence"],
    );
    assert_invalid(&table.get::<Stock>(&"k".repeat(1025), "r").await.unwrap_err(), &["1025 bytes"]);
    assert_invalid(&table.query(Some("a/b")).all::<Stock>().await.unwrap_err(), &["'/'"]);
    assert_eq!(proxy.count(Match::any()), 0, "{:?}", proxy.calls());
    // A transaction within the limits is applied.
    partition.commit(&many(MAX_CHANGES)).await.unwrap();
    assert_eq!(amount(&table, "r97").await, Some(1));
    let fits = (0..13).fold(Transaction::new(), |all, n| all.upsert(format!("r{n}"), &large(300)));
    partition.commit(&fits).await.unwrap();
}

#[tokio::test]
async fn invalid_table_names_are_refused() {
    let account = Account::with_key("acme", "a2V5").unwrap();
    for name in ["ab", "or-ders", "7up", "", &"x".repeat(64)] {
        assert_invalid(&Table::new(&account, name).unwrap_err(), &["3 to 63 letters and digits"]);
    }
}

#[tokio::test]
async fn missing_table_is_named_in_error() {
    let table = Table::new(&account(Azurite::shared().table_port()), "nowhere").unwrap();
    let change = Transaction::new().insert("r", &stock(1));
    let hints = ["table \"nowhere\"", "no such table", "create it"];
    assert_invalid(&table.fenced(lock_token(1)).partition("p").await.unwrap_err(), &hints);
    assert_invalid(&table.commit("p", &change).await.unwrap_err(), &hints);
    assert_invalid(&table.commit("p", &change.delete("x")).await.unwrap_err(), &hints);
    assert_invalid(&table.get::<Stock>("p", "r").await.unwrap_err(), &hints);
    assert_invalid(&table.query(None).all::<Stock>().await.unwrap_err(), &hints);
}

#[tokio::test]
async fn table_deleted_during_use_is_named_in_error() {
    let table = table("deletedtable").await;
    let partition = held(&table, 1).await;
    super::access::raw("DELETE", "Tables('deletedtable')", None).await;
    let error = partition.commit(&Transaction::new().insert("r", &stock(1))).await.unwrap_err();
    assert_invalid(&error, &["table \"deletedtable\"", "no such table"]);
}

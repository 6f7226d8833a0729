//! Fenced tables, against Azurite.

mod access;
mod access_token;
mod fencing;
mod leftovers;
mod limits;
mod races;
mod rows;
mod shared_token;
mod unknown_outcome;

use std::time::Duration;

use leasehold_client::Token;
use leasehold_fence::{
    LockToken,
    azure::Account,
    table::{FencedPartition, FencedTable, Table},
};
use leasehold_test_support::{azurite::Azurite, proxy::Proxy};
use serde::{Deserialize, Serialize};

/// Value of most rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stock {
    amount: i64,
}

fn stock(amount: i64) -> Stock {
    Stock { amount }
}

/// Azurite's account, at a port.
fn account(port: u16) -> Account {
    Account::from_connection_string(&Azurite::table_connection_string(port)).unwrap()
}

/// Creates a table for one test.
async fn table(name: &str) -> Table {
    let table = Table::new(&account(Azurite::shared().table_port()), name).unwrap();
    table.create().await.unwrap();
    table
}

/// Creates a table and opens it through a proxy, with a call timeout of one second.
async fn table_via_proxy(proxy: &Proxy, name: &str) -> Table {
    table(name).await;
    let account = account(proxy.port()).call_timeout(Duration::from_secs(1));
    Table::new(&account, name).unwrap()
}

fn lock_token(token: u64) -> LockToken {
    LockToken::new("", "azure/devstoreaccount1/table/x", Token::new(token))
}

fn fenced_table(table: &Table, token: u64) -> FencedTable {
    table.fenced(lock_token(token))
}

/// Opens the partition "p" with a token.
async fn held(table: &Table, token: u64) -> FencedPartition {
    fenced_table(table, token).partition("p").await.unwrap()
}

async fn amount(table: &Table, row: &str) -> Option<i64> {
    table.get::<Stock>("p", row).await.unwrap().map(|row| row.value.amount)
}

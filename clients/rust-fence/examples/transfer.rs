//! Moves money between rows of a table, under the lock that is designated for
//! the table. A worker that was stopped while it held the lock goes on too
//! late, and the storage itself refuses what it writes: no money is made.
//!
//! Start Azurite with its tables (`npx azurite`) and a daemon. In one terminal,
//! a worker that stops itself just before it writes, as if the machine had
//! frozen:
//!
//! ```sh
//! cargo run -p leasehold-fence --features azure --example transfer -- --stop
//! ```
//!
//! In another, one that takes over when the first one's session has expired:
//!
//! ```sh
//! cargo run -p leasehold-fence --features azure --example transfer -- --to carol
//! ```
//!
//! Then let the first go on, by `fg` or `kill -CONT`. It is refused, acquires
//! the lock again, and does its work anew. With `--unguarded` in both, its write
//! is accepted, and there is more money than before.
//!
//! `LEASEHOLD_ENDPOINT` is the daemon, `AZURE_STORAGE_CONNECTION_STRING` the
//! account; without them, the usual ports of this machine.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::{env, time::Duration};

use leasehold_client::{Client, Guard};
use leasehold_fence::{
    azure::Account,
    table::{Entity, Error, FencedPartition, Table, Transaction},
};
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

/// All rows are in one partition, so that they can be changed together.
pub(crate) const BANK: &str = "bank";

/// A row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Purse {
    /// What is in it.
    pub(crate) amount: i64,
}

/// What is to be done.
struct Order {
    table: String,
    from: String,
    to: String,
    amount: i64,
    /// Stop this process once, between reading and writing.
    stop: bool,
    unguarded: bool,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    run(env::args().skip(1)).await
}

/// The whole program.
pub(crate) async fn run(arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut order = read(arguments)?;
    let account = env::var("AZURE_STORAGE_CONNECTION_STRING");
    let account = account.unwrap_or_else(|_| "UseDevelopmentStorage=true".to_owned());
    let account = Account::from_connection_string(&account)?;
    let endpoint = env::var("LEASEHOLD_ENDPOINT").unwrap_or("http://127.0.0.1:7420".to_owned());
    let client = Client::builder(endpoint).client_name("transfer").ttl(Duration::from_secs(2));
    let client = client.connect().await?;
    let table = Table::new(&account, &order.table)?;
    table.create().await?;
    loop {
        let guard = client.table_lock(account.name(), &order.table)?.acquire().await?;
        println!("holding {} with token {}", guard.name(), guard.token());
        let done = transfer(&order, &table, &guard).await;
        // One stop is enough.
        order.stop = false;
        // It may be lost: the daemon knows, and it makes no difference here.
        let _ = guard.release().await;
        match done {
            Ok(()) => break,
            Err(error @ Error::Fenced { .. }) => println!("refused: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    let purses = table.query(Some(BANK)).all::<Purse>().await?;
    for purse in &purses {
        println!("{}: {}", purse.row, purse.value.amount);
    }
    println!("in all: {}", purses.iter().map(|purse| purse.value.amount).sum::<i64>());
    client.close().await;
    Ok(())
}

async fn transfer(order: &Order, table: &Table, guard: &Guard) -> Result<(), Error> {
    // From here on, no earlier holder can write to the bank.
    let bank =
        if order.unguarded { None } else { Some(table.fenced(guard).partition(BANK).await?) };
    let from = purse(table, bank.as_ref(), &order.from).await?;
    let to = purse(table, bank.as_ref(), &order.to).await?;
    println!("{} has {}, {} has {}", order.from, from.amount, order.to, to.amount);
    if !guard.is_valid() {
        println!("the lock is lost");
    }
    // However soon after that look the write comes, it may be too late.
    if order.stop {
        println!("stopped before the write");
        let _ = raise(Signal::SIGSTOP);
        println!("going on with the write");
    }
    let transaction = Transaction::new()
        .upsert(&order.from, &Purse { amount: from.amount - order.amount })
        .upsert(&order.to, &Purse { amount: to.amount + order.amount });
    match &bank {
        Some(bank) => bank.commit(&transaction).await?,
        None => table.commit(BANK, &transaction).await?,
    };
    println!("moved {} from {} to {}", order.amount, order.from, order.to);
    Ok(())
}

/// Everybody begins with 100.
async fn purse(table: &Table, bank: Option<&FencedPartition>, row: &str) -> Result<Purse, Error> {
    let found: Option<Entity<Purse>> = match bank {
        Some(bank) => bank.get(row).await?,
        None => table.get(BANK, row).await?,
    };
    Ok(found.map_or(Purse { amount: 100 }, |entity| entity.value))
}

fn read(mut arguments: impl Iterator<Item = String>) -> Outcome<Order> {
    let mut order = Order {
        table: "purses".to_owned(),
        from: "alice".to_owned(),
        to: "bob".to_owned(),
        amount: 10,
        stop: false,
        unguarded: false,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--table" => order.table = value()?,
            "--from" => order.from = value()?,
            "--to" => order.to = value()?,
            "--amount" => order.amount = value()?.parse()?,
            "--stop" => order.stop = true,
            "--unguarded" => order.unguarded = true,
            _ => {
                let known = "--table, --from, --to, --amount, --stop and --unguarded";
                return Err(format!("{argument} is not known; {known} are").into());
            }
        }
    }
    Ok(order)
}

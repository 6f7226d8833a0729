//! Moves money between rows of a table, under the designated lock of the table. A worker
//! is paused while it holds the lock and resumes too late. The storage refuses its
//! write, so the total amount stays the same.
//!
//! Start Azurite (`npx azurite`) and a daemon. In one terminal, start a worker that stops
//! itself just before it writes:
//!
//! ```sh
//! cargo run -p leasehold-fence --features azure --example transfer -- --stop
//! ```
//!
//! In another, start a worker that takes over when the first session has expired:
//!
//! ```sh
//! cargo run -p leasehold-fence --features azure --example transfer -- --to carol
//! ```
//!
//! Then resume the first worker with `fg` or `kill -CONT`. Its write is refused. It
//! acquires the lock again and starts over with the current amounts. With `--unfenced`
//! in both terminals, the write is accepted, and the total amount is higher than before.
//!
//! `LEASEHOLD_ENDPOINT` sets the daemon, `AZURE_STORAGE_CONNECTION_STRING` the account.
//! The defaults are the local daemon and the local emulator.

#![allow(clippy::print_stdout, reason = "an example prints its progress")]

use std::{env, time::Duration};

use leasehold_client::{Client, Guard};
use leasehold_fence::{
    azure::Account,
    table::{Entity, Error, FencedPartition, Table, Transaction},
};
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

/// Partition of all rows. One partition, so that one transaction can change them.
pub(crate) const BANK: &str = "bank";

/// Value of a row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Purse {
    /// Amount of money.
    pub(crate) amount: i64,
}

/// Command line options.
struct Options {
    table: String,
    from: String,
    to: String,
    amount: i64,
    /// Stops this process once, between the read and the write.
    stop: bool,
    unfenced: bool,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    run(env::args().skip(1)).await
}

/// Runs the example.
pub(crate) async fn run(arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut options = parse(arguments)?;
    let account = env::var("AZURE_STORAGE_CONNECTION_STRING");
    let account = account.unwrap_or_else(|_| "UseDevelopmentStorage=true".to_owned());
    let account = Account::from_connection_string(&account)?;
    let endpoint = env::var("LEASEHOLD_ENDPOINT").unwrap_or("http://127.0.0.1:7420".to_owned());
    let client = Client::builder(endpoint).client_name("transfer").ttl(Duration::from_secs(2));
    let client = client.connect().await?;
    let table = Table::new(&account, &options.table)?;
    table.create().await?;
    loop {
        let guard = client.table_lock(account.name(), &options.table)?.acquire().await?;
        println!("holding {} with token {}", guard.name(), guard.token());
        let done = transfer(&options, &table, &guard).await;
        // The next attempt does not stop.
        options.stop = false;
        // The lock may be lost. That makes no difference here.
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
    println!("total: {}", purses.iter().map(|purse| purse.value.amount).sum::<i64>());
    client.close().await;
    Ok(())
}

async fn transfer(options: &Options, table: &Table, guard: &Guard) -> Result<(), Error> {
    // From now on, no earlier holder can write to the bank.
    let bank =
        if options.unfenced { None } else { Some(table.fenced(guard).partition(BANK).await?) };
    let from = purse(table, bank.as_ref(), &options.from).await?;
    let to = purse(table, bank.as_ref(), &options.to).await?;
    println!("{} has {}, {} has {}", options.from, from.amount, options.to, to.amount);
    if !guard.is_valid() {
        println!("the lock is lost");
    }
    // The process may be paused between this check and the write.
    if options.stop {
        println!("stopped before the write");
        let _ = raise(Signal::SIGSTOP);
        println!("resuming with the write");
    }
    let transaction = Transaction::new()
        .upsert(&options.from, &Purse { amount: from.amount - options.amount })
        .upsert(&options.to, &Purse { amount: to.amount + options.amount });
    match &bank {
        Some(bank) => bank.commit(&transaction).await?,
        None => table.commit(BANK, &transaction).await?,
    };
    println!("moved {} from {} to {}", options.amount, options.from, options.to);
    Ok(())
}

/// Reads a purse. A new one contains 100.
async fn purse(table: &Table, bank: Option<&FencedPartition>, row: &str) -> Result<Purse, Error> {
    let found: Option<Entity<Purse>> = match bank {
        Some(bank) => bank.get(row).await?,
        None => table.get(BANK, row).await?,
    };
    Ok(found.map_or(Purse { amount: 100 }, |entity| entity.value))
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Options> {
    let mut options = Options {
        table: "purses".to_owned(),
        from: "alice".to_owned(),
        to: "bob".to_owned(),
        amount: 10,
        stop: false,
        unfenced: false,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--table" => options.table = value()?,
            "--from" => options.from = value()?,
            "--to" => options.to = value()?,
            "--amount" => options.amount = value()?.parse()?,
            "--stop" => options.stop = true,
            "--unfenced" => options.unfenced = true,
            _ => {
                let known = "--table, --from, --to, --amount, --stop and --unfenced";
                return Err(format!("unknown argument {argument}; use {known}").into());
            }
        }
    }
    Ok(options)
}

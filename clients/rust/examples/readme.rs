//! Code blocks of the README, the tutorial and the README of this crate. A test of
//! the documentation requires each block in an example, so that it compiles.
//!
//! Start a daemon, then:
//!
//! ```sh
//! cargo run -p leasehold-client --example readme
//! ```

#![allow(clippy::print_stdout, reason = "an example prints its progress")]

use std::time::Duration;

use leasehold_client::{Client, Error, Token};

#[tokio::main]
async fn main() -> Result<(), Error> {
    readme().await?;
    tutorial().await?;
    locks().await?;
    elections().await?;
    steps_of_an_election().await?;
    println!("done");
    Ok(())
}

async fn readme() -> Result<(), Error> {
    use std::time::Duration;

    use leasehold_client::Client;

    let client = Client::connect("http://127.0.0.1:7420").await?;
    let guard = client.lock("orders").wait(Duration::from_secs(30)).acquire().await?;
    write_orders(guard.token()).await; // the resource refuses a lower token
    guard.release().await?;

    // Or: the work is canceled when the lock is lost.
    client.with_lock("orders", async |guard| write_orders(guard.token()).await).await?;
    Ok(())
}

async fn tutorial() -> Result<(), Error> {
    let client = leasehold_client::Client::connect("http://127.0.0.1:7420").await?;
    client.with_lock("stock", async |guard| set_amount(80, guard.token()).await).await?;
    Ok(())
}

async fn locks() -> Result<(), Error> {
    let client = Client::connect("http://127.0.0.1:7420").await?;
    let guard = client.lock("orders").wait(Duration::from_secs(30)).acquire().await?;
    write_orders(guard.token()).await;
    guard.release().await?;

    client.with_lock("orders", async |guard| write_orders(guard.token()).await).await?;
    Ok(())
}

async fn elections() -> Result<(), Error> {
    let client = Client::connect("http://127.0.0.1:7420").await?;
    client
        .election("scheduler")
        .value("10.0.0.7:8080")
        .run_as_leader(async |leadership| schedule(leadership.token()).await)
        .await?;
    Ok(())
}

async fn steps_of_an_election() -> Result<(), Error> {
    let client = Client::connect("http://127.0.0.1:7420").await?;
    let leadership = client.election("scheduler").campaign("10.0.0.7:8080").await?;
    leadership.proclaim("10.0.0.7:8081").await?; // another value, the same token
    leadership.resign().await?; // the next candidate leads at once
    Ok(())
}

/// Follows an election until an error.
#[allow(dead_code, reason = "compiled, not run")]
async fn observer(client: &Client) {
    let mut observer = client.election("scheduler").observe();
    while let Ok(state) = observer.next().await {
        println!("{state:?}");
    }
}

/// Connects to one of two daemons.
#[allow(dead_code, reason = "compiled, not run")]
async fn endpoints() -> Result<Client, Error> {
    let client = Client::connect(["http://a:7420", "http://b:7420"]).await?; // or "http://a:7420,http://b:7420"
    Ok(client)
}

async fn write_orders(token: Token) {
    println!("writing orders with token {token}");
}

async fn set_amount(amount: u32, token: Token) {
    println!("setting the amount to {amount} with token {token}");
}

async fn schedule(token: Token) {
    println!("scheduling with token {token}");
}

//! Holds a lock until Ctrl-C, and reacts when it is lost.
//!
//! Start a daemon, then in two terminals:
//!
//! ```sh
//! cargo run -p leasehold-client --example hold -- orders
//! ```
//!
//! The second process waits for the first. To see a loss, run
//! `leasehold break orders --reason test`, or stop the daemon.

#![allow(clippy::print_stdout, reason = "an example prints its progress")]

use std::env;

use leasehold_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let endpoint = env::var("LEASEHOLD_ENDPOINT").unwrap_or("http://127.0.0.1:7420".to_owned());
    let name = env::args().nth(1).unwrap_or("orders".to_owned());
    let client = Client::builder(endpoint).client_name("hold example").connect().await?;

    let guard = client
        .lock(name)
        .on_progress(|progress| {
            let holder =
                progress.holder.map_or("no client".to_owned(), |holder| holder.to_string());
            println!("waiting at {}: held by {holder} {}", progress.position, progress.note);
        })
        .acquire()
        .await?;
    println!("{} is held with token {}", guard.name(), guard.token());
    println!(
        "the grant is valid for {:?}, and is extended automatically",
        guard.deadline().remaining()
    );

    loop {
        tokio::select! {
            // Stop all work that the lock protects, no later than the deadline.
            loss = guard.lost() => {
                println!("lost: {} ({:?} left)", loss.message, guard.deadline().remaining());
                return Ok(());
            }
            risk = guard.at_risk() => {
                println!("at risk: {} (ends in {:?})", risk.message, risk.ends_in);
            }
            _ = tokio::signal::ctrl_c() => {
                guard.release().await?;
                println!("released");
                return Ok(());
            }
        }
    }
}

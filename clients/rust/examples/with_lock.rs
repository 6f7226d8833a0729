//! Does some work under a lock. The work is dropped where it stands when the
//! lock is lost.
//!
//! Start a daemon, then:
//!
//! ```sh
//! cargo run -p leasehold-client --example with_lock
//! ```
//!
//! While it counts, try `leasehold break counter --reason test`.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]
#![allow(clippy::disallowed_methods, reason = "an example uses tokio as its reader does")]

use std::{env, time::Duration};

use leasehold_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let endpoint = env::var("LEASEHOLD_ENDPOINT").unwrap_or("http://127.0.0.1:7420".to_owned());
    let client = Client::connect(endpoint).await?;

    let counted = client
        .with_lock("counter", async |guard| {
            println!("counting under token {}", guard.token());
            for number in 1..=10 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                println!("{number}");
            }
            10
        })
        .await;

    match counted {
        Ok(to) => println!("counted to {to}"),
        Err(Error::Lost { message, .. }) => println!("stopped: {message}"),
        Err(error) => return Err(error),
    }
    client.close().await;
    Ok(())
}

//! Code blocks of the README of this crate. A test of the documentation requires
//! each block in an example, so that it compiles.
//!
//! Start Azurite (`npx azurite`) and a daemon. Set `AZURE_STORAGE_CONNECTION_STRING`,
//! create the table `stock` and the container `reports`, then:
//!
//! ```sh
//! cargo run -p leasehold-fence --features azure --example readme
//! ```

use std::{env, error::Error};

use leasehold_client::Client;
use leasehold_fence::{
    azure::Account,
    blob::Blob,
    table::{Table, Transaction},
};
use serde::{Deserialize, Serialize};

/// Value of a row.
#[derive(Serialize, Deserialize)]
struct Stock {
    amount: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::connect("http://127.0.0.1:7420").await?;
    table(&client).await?;
    blob(&client).await?;
    client.close().await;
    Ok(())
}

async fn table(client: &Client) -> Result<(), Box<dyn Error>> {
    let account = Account::from_connection_string(&env::var("AZURE_STORAGE_CONNECTION_STRING")?)?;
    let guard = client.table_lock(account.name(), "stock")?.acquire().await?;
    let table = Table::new(&account, "stock")?.fenced(&guard);

    let shelf = table.partition("shelf-7").await?; // from now on, no earlier holder can write to it
    if let Some(nuts) = shelf.get::<Stock>("nuts").await? {
        let fewer = Stock { amount: nuts.value.amount - 1 };
        shelf.commit(&Transaction::new().replace("nuts", &fewer)).await?; // all changes or none
    }
    Ok(())
}

async fn blob(client: &Client) -> Result<(), Box<dyn Error>> {
    let account = Account::from_connection_string(&env::var("AZURE_STORAGE_CONNECTION_STRING")?)?;
    let guard = client.blob_lock(account.name(), "reports", "2026.csv")?.acquire().await?;
    let report = Blob::new(&account, "reports", "2026.csv")?.fenced(&guard).await?; // installs the fence
    report.append("one more line\n").await?; // refused for a stale holder
    Ok(())
}

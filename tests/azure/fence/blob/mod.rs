//! Blobs that refuse a holder that was overtaken, against Azurite.
mod access;
mod fencing;
mod leased;
mod races;
mod unclear;
mod update;

use std::time::Duration;

use leasehold_client::Token;
use leasehold_fence::{
    LockToken,
    azure::Account,
    blob::{Blob, FencedBlob},
};
use leasehold_test_support::{
    azurite::Azurite,
    proxy::Proxy,
    rest::{self, Rest},
};

fn account() -> Account {
    Account::from_connection_string(&Azurite::shared().connection_string()).unwrap()
}

/// A blob in a container that was created for the test of this name.
async fn blob(container: &str) -> Blob {
    let blob = Blob::new(&account(), container, "a/b c.txt").unwrap();
    blob.create_container().await.unwrap();
    blob
}

/// The same through a proxy, by which calls take this long at most.
async fn blob_behind(proxy: &Proxy, container: &str, limit: Duration) -> Blob {
    blob(container).await;
    let account = Azurite::shared().connection_string_via(proxy.port());
    let account = Account::from_connection_string(&account).unwrap().call_limit(limit);
    Blob::new(&account, container, "a/b c.txt").unwrap()
}

/// The same by plain REST, as somebody would who knows nothing of guards.
fn past(container: &str) -> rest::Blob {
    Rest::new(Azurite::shared()).container(container).blob("a/b c.txt")
}

fn proxy() -> Proxy {
    Proxy::start(Azurite::shared().port())
}

fn fence(token: u64) -> LockToken {
    LockToken::new("", "azure/devstoreaccount1/blob/x", Token::new(token))
}

async fn held(blob: &Blob, token: u64) -> FencedBlob {
    blob.fenced(fence(token)).await.unwrap()
}

async fn text(blob: &Blob) -> Option<String> {
    let content = blob.read().await.unwrap()?;
    Some(String::from_utf8(content.bytes.to_vec()).unwrap())
}

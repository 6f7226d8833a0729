//! Fenced blobs, against Azurite.

mod access;
mod fencing;
mod leased;
mod races;
mod unknown_outcome;
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

/// Creates a container and returns a blob in it.
async fn blob(container: &str) -> Blob {
    let blob = Blob::new(&account(), container, "a/b c.txt").unwrap();
    blob.create_container().await.unwrap();
    blob
}

/// Creates a container and returns a blob in it, through a proxy and with a call
/// timeout.
async fn blob_via_proxy(proxy: &Proxy, container: &str, timeout: Duration) -> Blob {
    blob(container).await;
    let account = Azurite::shared().connection_string_via(proxy.port());
    let account = Account::from_connection_string(&account).unwrap().call_timeout(timeout);
    Blob::new(&account, container, "a/b c.txt").unwrap()
}

/// The blob over plain REST, as used by a program without fences.
fn direct(container: &str) -> rest::Blob {
    Rest::new(Azurite::shared()).container(container).blob("a/b c.txt")
}

fn proxy() -> Proxy {
    Proxy::start(Azurite::shared().port())
}

fn lock_token(token: u64) -> LockToken {
    LockToken::new("", "azure/devstoreaccount1/blob/x", Token::new(token))
}

async fn held(blob: &Blob, token: u64) -> FencedBlob {
    blob.fenced(lock_token(token)).await.unwrap()
}

async fn text(blob: &Blob) -> Option<String> {
    let content = blob.read().await.unwrap()?;
    Some(String::from_utf8(content.bytes.to_vec()).unwrap())
}

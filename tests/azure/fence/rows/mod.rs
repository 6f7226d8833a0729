//! One test for each row of `docs/fencing.md`. The page names the tests;
//! `page` checks that both agree.

mod blob;
mod container;
mod page;
mod queue;
mod table;

use leasehold_client::Token;
use leasehold_fence::{LockToken, azure::Account};
use leasehold_test_support::{
    azurite::Azurite,
    rest::{Container, Rest},
};

/// Lease IDs of the holder and of another client.
const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb";

fn account() -> Account {
    let azurite = Azurite::shared();
    let account = Account::from_connection_string(&azurite.connection_string()).unwrap();
    let tables = leasehold_test_support::azurite::blob_url(azurite.table_port());
    account.table_endpoint(&tables).unwrap()
}

/// Creates a container.
async fn container(name: &str) -> Container {
    let container = Rest::new(Azurite::shared()).container(name);
    container.create().await.ok();
    container
}

fn lock_token(token: u64) -> LockToken {
    LockToken::new("", "rows", Token::new(token))
}

//! The rows of `clients/GUARDS.md`, each as a test that shows what the row says.
//! The page names the tests, and the last test here compares the two.
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

/// Lease ids: of the holder, and of somebody else.
const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb";

fn account() -> Account {
    let azurite = Azurite::shared();
    let account = Account::from_connection_string(&azurite.connection_string()).unwrap();
    let tables = leasehold_test_support::azurite::blob_url(azurite.table_port());
    account.table_endpoint(&tables).unwrap()
}

/// A container of this name, just created.
async fn container(name: &str) -> Container {
    let container = Rest::new(Azurite::shared()).container(name);
    container.create().await.ok();
    container
}

fn fence(token: u64) -> LockToken {
    LockToken::new("", "rows", Token::new(token))
}

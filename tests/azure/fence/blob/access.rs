//! What gives access to blobs, and what is shown of it.

use leasehold_fence::{
    azure::Account,
    blob::{Blob, Error},
};
use leasehold_test_support::{
    azurite::{ACCOUNT, Azurite},
    rest::sign::sas,
};

use super::{blob, fence};

fn by_sas(permissions: &str) -> Account {
    let sas = sas(permissions, "2099-01-01T00:00:00Z");
    let account = Account::with_sas(ACCOUNT, &sas).unwrap();
    account.blob_endpoint(&Azurite::shared().blob_url()).unwrap()
}

#[tokio::test]
async fn a_signature_is_enough_if_it_allows_to_read_and_write() {
    blob("sas").await;
    let guarded = Blob::new(&by_sas("rcw"), "sas", "b").unwrap().fenced(fence(1)).await.unwrap();
    guarded.write("1").await.unwrap();
    guarded.append("2").await.unwrap();
    guarded.delete().await.unwrap();
    let error = Blob::new(&by_sas("r"), "sas", "b").unwrap().fenced(fence(2)).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("sp=rcw") && !told.contains("sig="), "{told}");
}

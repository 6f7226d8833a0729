//! Credentials for blobs.

use leasehold_fence::{
    azure::Account,
    blob::{Blob, Error},
};
use leasehold_test_support::{
    azurite::{ACCOUNT, Azurite},
    rest::sign::sas,
};

use super::{blob, lock_token};

fn by_sas(permissions: &str) -> Account {
    let sas = sas(permissions, "2099-01-01T00:00:00Z");
    let account = Account::with_sas(ACCOUNT, &sas).unwrap();
    account.blob_endpoint(&Azurite::shared().blob_url()).unwrap()
}

#[tokio::test]
async fn read_write_sas_suffices() {
    blob("sas").await;
    let fenced =
        Blob::new(&by_sas("rcw"), "sas", "b").unwrap().fenced(lock_token(1)).await.unwrap();
    fenced.write("1").await.unwrap();
    fenced.append("2").await.unwrap();
    fenced.delete().await.unwrap();
    let error =
        Blob::new(&by_sas("r"), "sas", "b").unwrap().fenced(lock_token(2)).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("sp=rcw") && !message.contains("sig="), "{message}");
}

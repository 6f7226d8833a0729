//! Conformance suite of the store trait, for the Azure store.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use leasehold::config;
use leasehold_azure_store::{AzureStore, account::Account};
use leasehold_store::LeaseStore;
use leasehold_test_support::{azurite::Azurite, rest::Rest, store_conformance::StoreFixture};

/// A container in the emulator.
struct AzureFixture(config::Azure);

impl AzureFixture {
    async fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let container = format!("conformance-{}", COUNT.fetch_add(1, Relaxed));
        let azurite = Azurite::shared();
        Rest::new(azurite).container(&container).create().send().await.unwrap().ok();
        Self(config::Azure {
            connection_string: Some(config::SecretText::new(azurite.connection_string())),
            container,
            ..config::Azure::default()
        })
    }
}

impl StoreFixture for AzureFixture {
    async fn open(&self) -> Arc<dyn LeaseStore> {
        let settings = self.0.settings();
        let account = Account::new(&settings).unwrap();
        Arc::new(AzureStore::new(
            account,
            &settings,
            "test".to_owned(),
            leasehold_time::Entropy::system().unwrap(),
        ))
    }
}

leasehold_test_support::store_conformance! { AzureFixture::new() }

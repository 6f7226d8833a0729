//! Conformance suite of the store trait, for the embedded store.

use std::{path::PathBuf, sync::Arc};

use leasehold_embedded_store::Embedded;
use leasehold_store::LeaseStore;
use leasehold_test_support::store_conformance::StoreFixture;

struct EmbeddedFixture(tempfile::TempDir);

impl EmbeddedFixture {
    async fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl StoreFixture for EmbeddedFixture {
    async fn open(&self) -> Arc<dyn LeaseStore> {
        let path: PathBuf = self.0.path().into();
        Arc::new(Embedded::open(&path).unwrap())
    }
}

leasehold_test_support::store_conformance! { EmbeddedFixture::new() }

//! The embedded store does what every store must do.

use std::{path::PathBuf, sync::Arc};

use leasehold_embedded_store::Embedded;
use leasehold_store::LeaseStore;
use leasehold_test_support::store_conformance::Shelf;

struct EmbeddedShelf(tempfile::TempDir);

impl EmbeddedShelf {
    async fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Shelf for EmbeddedShelf {
    async fn open(&self) -> Arc<dyn LeaseStore> {
        let path: PathBuf = self.0.path().into();
        Arc::new(Embedded::open(&path).unwrap())
    }
}

leasehold_test_support::store_conformance! { EmbeddedShelf::new() }

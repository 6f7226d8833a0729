//! Publication of a leader's value, or of a new holder, under the lease of a hold.

use std::sync::Arc;

use super::amend::Written;
use crate::{AzureStore, MIN_LEASE_DURATION, calls::limiter::Purpose};
use leasehold_store::{Error, LeaseId, Publication, Publish, Value};
use leasehold_types::LockName;

impl AzureStore {
    /// Implements [`LeaseStore::publish`](leasehold_store::LeaseStore::publish).
    pub(crate) async fn publish_hold(
        &self,
        name: LockName,
        id: LeaseId,
        publication: Publication,
    ) -> Result<Publish, Error> {
        let amendment = self.amendment(&name, Some(id), Purpose::Publish, MIN_LEASE_DURATION);
        let Publication { holder, token, held_for, value } = publication;
        let since = self.shared.blobs.service_seconds().saturating_sub(held_for.as_secs());
        let amended = self.amend_latest(&amendment, |record, _| {
            record.holder = Some(Arc::clone(&holder));
            record.leader = value.is_some().then_some(token.get());
            record.since = since;
            Ok(value.clone().or_else(|| (record.bytes > 0).then(Value::default)))
        });
        match amended.await {
            Ok(Written::Stored(_)) => Ok(Publish::Published),
            Ok(Written::NotOurs(_)) => Ok(Publish::Lost),
            Ok(Written::Unknown(why)) => Ok(Publish::Unknown { why }),
            Err(corrupt) => Err(self.data_loss(&name, &amendment.path, &corrupt)),
        }
    }
}

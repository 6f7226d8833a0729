//! Renewal of a lease (safety rules 3 and 7).
//!
//! One call. Only a confirmed renewal moves the deadline, which counts from when
//! the call was sent. After an unknown outcome the deadline stays, and the caller
//! retries.

use std::time::Duration;

use crate::{
    AzureStore,
    calls::{CallOptions, fault::Fault, limiter::Purpose},
};
use leasehold_rules::{call_timeout, lease_deadline};
use leasehold_store::{LeaseId, Renew};
use leasehold_types::LockName;

impl AzureStore {
    /// Implements [`LeaseStore::renew`](leasehold_store::LeaseStore::renew).
    pub(crate) async fn renew_lease(
        &self,
        name: LockName,
        id: LeaseId,
        duration: Duration,
    ) -> Renew {
        let options = CallOptions { purpose: Purpose::Renew, timeout: call_timeout(duration) };
        let (sent, renewed) = self.shared.blobs.renew(&self.path(&name), id, options).await;
        match renewed {
            Ok(()) => Renew::Renewed { deadline: Some(lease_deadline(sent, duration)) },
            Err(fault @ (Fault::NotOurs { .. } | Fault::NoBlob | Fault::NoContainer)) => {
                let broken = match fault {
                    Fault::NotOurs { .. } => self.read_break_note(&name, id).await,
                    _ => None,
                };
                Renew::Lost { why: fault.why(), broken }
            }
            Err(fault) => Renew::Unknown { why: fault.why() },
        }
    }
}

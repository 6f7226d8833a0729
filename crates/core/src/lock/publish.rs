//! Publication of a leader and its value to observers. Sans-IO.
//!
//! At most one write is in flight; later changes are written after it. The local
//! handoff of a plain lock is not published.

use std::sync::Arc;

use leasehold_store::{Error, LeaseId, Publication, Publish, StoreCall, Value};
use leasehold_time::Moment;

use super::{
    Effect,
    grant::SessionKey,
    lease::{Lease, backoff},
    state::Lock,
    table::Cx,
};

/// Maximum number of proclaims of one lock that wait for the store.
const MAX_PENDING_PROCLAIMS: usize = 64;

/// Publication state of a hold.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    /// Number of the current state. Increases with every change.
    state: u64,
    /// Last state that observers can see.
    published: u64,
    /// State that is being written.
    in_flight: Option<u64>,
    retry_at: Option<Moment>,
    failures: u32,
    /// Pending proclaims: session, request number, and the state to publish.
    pending: Vec<(SessionKey, u64, u64)>,
}

impl Publishing {
    /// Returns the time of the next retry.
    pub(super) const fn due(&self) -> Option<Moment> {
        self.retry_at
    }
}

impl Lock {
    /// Handles a proclaim of the holder.
    pub(super) fn proclaim(&mut self, request: u64, value: Value, cx: &mut Cx<'_>) {
        let Some(grant) = self.grant.as_mut().filter(|grant| grant.is_active()) else {
            return;
        };
        let session = grant.session;
        // The lease is lost. The holder is notified next.
        let Lease::Held { publishing, .. } = &mut self.lease else {
            return cx.out.push(Effect::NotProclaimed { session, request, too_many: false });
        };
        let publishing = publishing.get_or_insert_default();
        if publishing.pending.len() >= MAX_PENDING_PROCLAIMS {
            return cx.out.push(Effect::NotProclaimed { session, request, too_many: true });
        }
        publishing.state += 1;
        publishing.pending.push((session, request, publishing.state));
        grant.value = Some(value);
        self.publish(cx);
    }

    /// Publishes a new holder, if the lock is or was used as an election.
    pub(super) fn publish_holder(&mut self, cx: &mut Cx<'_>) {
        let leads = self.grant.as_ref().is_some_and(|grant| grant.value.is_some());
        if let Some(publishing) = self.publishing()
            && (leads || publishing.is_some())
        {
            publishing.get_or_insert_default().state += 1;
            self.publish(cx);
        }
    }

    /// Publishes the current state, unless a write is in flight or a retry is
    /// scheduled.
    fn publish(&mut self, cx: &mut Cx<'_>) {
        let Some(grant) = &self.grant else { return };
        let Some(id) = self.held_id() else { return };
        let Lease::Held { publishing, .. } = &mut self.lease else { return };
        if let Some(publishing) = publishing
            && publishing.in_flight.is_none()
            && publishing.retry_at.is_none()
            && publishing.published < publishing.state
        {
            publishing.in_flight = Some(publishing.state);
            let publication = Publication {
                holder: Arc::clone(&grant.holder),
                token: grant.token,
                held_for: cx.now.since(grant.since),
                value: grant.value.clone(),
            };
            let call = StoreCall::Publish(self.name.clone(), id, publication);
            cx.out.push(Effect::Call(cx.lock, call));
        }
    }

    /// Retries a failed publication if it is due.
    pub(super) fn tick_publishing(&mut self, cx: &mut Cx<'_>) {
        if let Some(Some(publishing)) = self.publishing()
            && publishing.retry_at.take_if(|at| cx.now >= *at).is_some()
        {
            self.publish(cx);
        }
    }

    /// Handles the answer to [`StoreCall::Publish`].
    pub(super) fn published(
        &mut self,
        id: LeaseId,
        answer: &Result<Publish, Error>,
        cx: &mut Cx<'_>,
    ) {
        if self.held_id() != Some(id) {
            return;
        }
        let Some(Some(publishing)) = self.publishing() else { return };
        let Some(state) = publishing.in_flight.take() else { return };
        match answer {
            Ok(Publish::Published) => {
                publishing.published = state;
                publishing.failures = 0;
                for (session, request, _) in
                    publishing.pending.extract_if(.., |(.., awaited)| *awaited <= state)
                {
                    cx.out.push(Effect::Proclaimed { session, request });
                }
            }
            // If the lease is lost, the next renewal detects it.
            Ok(Publish::Lost | Publish::Unknown { .. }) | Err(_) => {
                publishing.retry_at = Some(cx.now + backoff(publishing.failures, cx));
                publishing.failures += 1;
            }
        }
        self.publish(cx);
    }

    /// Fails the pending proclaims, because the grant has ended or is lost.
    pub(super) fn fail_proclaims(&mut self, cx: &mut Cx<'_>) {
        if let Some(Some(publishing)) = self.publishing() {
            for (session, request, _) in publishing.pending.drain(..) {
                cx.out.push(Effect::NotProclaimed { session, request, too_many: false });
            }
        }
    }
}

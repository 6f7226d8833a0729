//! Showing others who leads, and with which value. Pure.
//!
//! One write is under way at most; what has changed meanwhile is written after
//! it. A plain lock is not shown anew when it goes from hand to hand.

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

/// What is yet to be shown of a hold.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    /// Counts the states that there were.
    state: u64,
    /// The last that others can see.
    shown: u64,
    /// The one that is being written.
    underway: Option<u64>,
    retry_at: Option<Moment>,
    failures: u32,
    /// Who is to be told once a state can be seen.
    asked: Vec<(SessionKey, u64, u64)>,
}

impl Publishing {
    /// When to try again.
    pub(super) const fn due(&self) -> Option<Moment> {
        self.retry_at
    }
}

impl Lock {
    /// The holder shows another value.
    pub(super) fn proclaim(&mut self, request: u64, value: Value, cx: &mut Cx<'_>) {
        let Some(grant) = self.grant.as_mut().filter(|grant| grant.is_active()) else {
            return;
        };
        let session = grant.session;
        // Not ours any more, and soon told so.
        let Lease::Held { publishing, .. } = &mut self.lease else {
            return cx.out.push(Effect::NotProclaimed { session, request, too_many: false });
        };
        let publishing = publishing.get_or_insert_default();
        if publishing.asked.len() >= MAX_PENDING_PROCLAIMS {
            return cx.out.push(Effect::NotProclaimed { session, request, too_many: true });
        }
        publishing.state += 1;
        publishing.asked.push((session, request, publishing.state));
        grant.value = Some(value);
        self.publish(cx);
    }

    /// The lock has a new holder, of whom others do not know.
    pub(super) fn show_holder(&mut self, cx: &mut Cx<'_>) {
        let leads = self.grant.as_ref().is_some_and(|grant| grant.value.is_some());
        if let Some(publishing) = self.publishing()
            && (leads || publishing.is_some())
        {
            publishing.get_or_insert_default().state += 1;
            self.publish(cx);
        }
    }

    /// Writes what is to be seen, unless that is being done, or is to be tried
    /// again later.
    fn publish(&mut self, cx: &mut Cx<'_>) {
        let Some(grant) = &self.grant else { return };
        let Some(id) = self.held_id() else { return };
        let Lease::Held { publishing, .. } = &mut self.lease else { return };
        if let Some(publishing) = publishing
            && publishing.underway.is_none()
            && publishing.retry_at.is_none()
            && publishing.shown < publishing.state
        {
            publishing.underway = Some(publishing.state);
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

    /// Time has passed.
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
        let Some(state) = publishing.underway.take() else { return };
        match answer {
            Ok(Publish::Published) => {
                publishing.shown = state;
                publishing.failures = 0;
                for (session, request, _) in
                    publishing.asked.extract_if(.., |(.., asked)| *asked <= state)
                {
                    cx.out.push(Effect::Proclaimed { session, request });
                }
            }
            // If the lease is lost, a renewal will say so.
            Ok(Publish::Lost | Publish::Unknown { .. }) | Err(_) => {
                publishing.retry_at = Some(cx.now + backoff(publishing.failures, cx));
                publishing.failures += 1;
            }
        }
        self.publish(cx);
    }

    /// The grant is over, or is lost: what was not shown by now never will be.
    pub(super) fn fail_proclaims(&mut self, cx: &mut Cx<'_>) {
        if let Some(Some(publishing)) = self.publishing() {
            for (session, request, _) in publishing.asked.drain(..) {
                cx.out.push(Effect::NotProclaimed { session, request, too_many: false });
            }
        }
    }
}

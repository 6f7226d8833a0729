//! Answers of the store to the calls of a lock (safety rule 7).

use std::time::Duration;

use super::{
    Effect, Refusal,
    grant::Cause,
    lease::{Blocker, Lease, backoff, retry_later},
    queue::Queue,
    renew::{RenewalSample, RenewalState},
    state::Lock,
    table::Cx,
};
use crate::journal::Fact;
use leasehold_rules::valid_until;
use leasehold_store as lease;
use leasehold_store::{LeaseId, StoreAnswer};

impl Lock {
    /// Handles the answer to a call for the lease with this ID.
    pub(super) fn answered(&mut self, id: LeaseId, answer: StoreAnswer, cx: &mut Cx<'_>) {
        match (&mut self.lease, answer) {
            (Lease::Acquiring { id: acquiring, .. }, StoreAnswer::Acquire(answer))
                if *acquiring == id =>
            {
                self.acquired(id, answer, cx);
            }
            (_, StoreAnswer::Publish(answer)) => self.published(id, &answer, cx),
            (Lease::Held { id: held, awaits_tokens, .. }, StoreAnswer::NextTokens(answer))
                if *held == id =>
            {
                *awaits_tokens = false;
                self.got_tokens(id, answer, cx);
            }
            (Lease::Held { id: held, .. }, StoreAnswer::Renew(answer)) if *held == id => {
                self.renewed(answer, cx);
            }
            (Lease::Releasing { id: released, .. }, StoreAnswer::Release(answer))
                if *released == id =>
            {
                self.released(answer, cx);
            }
            // The answer belongs to an earlier hold. Lease IDs are never reused, so that it
            // has no effect on the current one.
            _ => {}
        }
        self.advance(cx);
        self.reply_to_waiters(cx);
    }

    fn acquired(
        &mut self,
        id: LeaseId,
        answer: Result<lease::Acquire, lease::Error>,
        cx: &mut Cx<'_>,
    ) {
        let Lease::Acquiring {
            duration, ref previous, recorded, is_campaign, jumps, since, ..
        } = self.lease
        else {
            return;
        };
        let polls = previous.as_ref().map_or(0, |previous| previous.polls + 1);
        let is_from_peer = previous
            .as_ref()
            .is_some_and(|previous| matches!(previous.blocker, Blocker::HeldByPeer { .. }));
        if cx.settings.journal.is_on() {
            self.journal_answer(&answer, cx.now.since(since), is_from_peer, polls, cx);
        }
        match answer {
            Ok(lease::Acquire::Acquired(lease::Acquired { tokens, deadline })) => {
                let renewal = deadline.map(|deadline| {
                    let deadline = valid_until(deadline, jumps);
                    Box::new(RenewalState::new(deadline, duration, cx.now, cx.entropy))
                });
                self.lease = Lease::Held {
                    id,
                    tokens,
                    renewal,
                    awaits_tokens: false,
                    linger_until: None,
                    recorded: Some(recorded),
                    publishing: is_campaign.then(Box::default),
                };
            }
            Ok(lease::Acquire::Held { by }) => {
                self.lease = Lease::Waiting(retry_later(Blocker::HeldByPeer { by }, polls, cx));
            }
            Ok(lease::Acquire::Unknown { why }) => {
                let error = lease::Error::Unavailable { why, retry_after: None };
                let then = Some(retry_later(Blocker::StoreError(error), polls, cx));
                self.release_lease_then(id, then, cx);
            }
            Err(error @ lease::Error::DataLoss { .. }) => {
                self.lease = Lease::None;
                let why = Refusal::Blocker(Blocker::StoreError(error));
                self.refuse_while(why, Queue::pop, cx);
            }
            Err(error) => {
                self.lease = Lease::Waiting(retry_later(Blocker::StoreError(error), polls, cx));
            }
        }
    }

    /// Appends the outcome of an acquire call. Repeated polls of a blocked lease are
    /// left out.
    fn journal_answer(
        &self,
        answer: &Result<lease::Acquire, lease::Error>,
        took: Duration,
        is_from_peer: bool,
        polls: u32,
        cx: &mut Cx<'_>,
    ) {
        match answer {
            Ok(lease::Acquire::Acquired(_)) => {
                self.journal_call(cx, || Fact::LeaseAcquired { took, is_from_peer });
            }
            _ if polls > 0 => {}
            Ok(lease::Acquire::Held { by }) => {
                self.journal_lease(cx, || Fact::HeldByPeer { by: by.clone() });
            }
            Ok(lease::Acquire::Unknown { why }) => {
                self.journal_lease(cx, || Fact::StoreFailed { why: why.as_str().into() });
            }
            Err(error) => {
                self.journal_lease(cx, || Fact::StoreFailed { why: error.to_string().into() });
            }
        }
    }

    fn got_tokens(
        &mut self,
        id: LeaseId,
        answer: Result<lease::Acquire, lease::Error>,
        cx: &mut Cx<'_>,
    ) {
        match (&mut self.lease, answer) {
            (
                Lease::Held { tokens, .. },
                Ok(lease::Acquire::Acquired(lease::Acquired { tokens: more, .. })),
            ) => *tokens = more,
            (_, Ok(lease::Acquire::Held { .. })) => self.lease = Lease::None,
            // A hold without tokens can't grant: start again with a new lease.
            _ => self.release_lease(id, cx),
        }
    }

    fn renewed(&mut self, answer: Result<lease::Renew, lease::Error>, cx: &mut Cx<'_>) {
        let Lease::Held { renewal: Some(renewal), .. } = &mut self.lease else {
            return;
        };
        let (took, left) = (renewal.took(cx.now), renewal.valid_until().since(cx.now));
        let failures = renewal.failures();
        if cx.settings.journal.is_on() {
            let is_renewed = matches!(answer, Ok(lease::Renew::Renewed { .. }));
            renewal.add_sample(RenewalSample { at: cx.now, took, left, is_renewed });
        }
        match answer {
            Ok(lease::Renew::Renewed { deadline }) => {
                let deadline = deadline.unwrap_or_else(|| renewal.deadline());
                let is_out_of_risk = renewal.renewed(deadline, cx.now, cx.entropy);
                self.journal_call(cx, || Fact::Renewed { took, left, failures });
                if is_out_of_risk
                    && let Some(grant) = self.grant.as_ref().filter(|grant| grant.is_active())
                {
                    cx.out.push(Effect::OutOfRisk { session: grant.session });
                    self.journal_grant(cx, |grant| Fact::OutOfRisk { token: grant.token });
                }
            }
            Ok(lease::Renew::Unknown { .. }) | Err(_) => {
                renewal.record_unknown(cx.now, cx.entropy);
                let failures = failures + 1;
                self.journal_lease(cx, || Fact::RenewalFailed { took, left, failures });
            }
            Ok(lease::Renew::Lost { why, broken }) => {
                // The holder may act until the deadline that it knows. The lease is released
                // after that, or when the holder has released the lock, because peers wait
                // until a broken lease expires.
                renewal.retire();
                let at = renewal.deadline();
                self.journal_lease(cx, || Fact::LeaseLost);
                let cause = match broken {
                    Some(lease::Breaker { by, reason }) => Cause::Broken { by, reason },
                    None => Cause::LeaseLost { why: why.into() },
                };
                self.end(at, cause, cx);
            }
        }
    }

    fn released(&mut self, answer: Result<lease::Release, lease::Error>, cx: &mut Cx<'_>) {
        let Lease::Releasing { retry_at, failures, expires_at, then, .. } = &mut self.lease else {
            return;
        };
        if answer == Ok(lease::Release::Released) || cx.now >= *expires_at {
            self.lease = then.take().map_or(Lease::None, Lease::Waiting);
            self.journal_call(cx, || Fact::LeaseReleased);
        } else {
            *retry_at = Some(cx.now + backoff(*failures, cx));
            *failures += 1;
        }
    }
}

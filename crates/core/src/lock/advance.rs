//! Next step of a lock: grants the lock to a waiter, refuses waiters, and acquires,
//! keeps or releases the lease.

use std::{sync::Arc, time::Duration};

use leasehold_rules::may_linger;
use leasehold_store as lease;
use leasehold_store::{AcquireParams, LeaseId, StoreCall};
use leasehold_types::Token;

use super::{
    Effect, Refusal,
    grant::{Grant, Handle},
    lease::{Blocker, Lease, Waiting},
    queue::{Queue, Ticket, Waiter},
    state::Lock,
    table::{Cx, Due},
};
use crate::journal::{Entry, Fact, Source};

impl Lock {
    /// Takes the next possible step: grants the lock to the next waiter, acquires the
    /// lease, or releases it.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        if self.grant.is_some() {
            return;
        }
        let wanted = self.is_wanted();
        let next = self.queue.as_ref().and_then(|queue| queue.first_connected());
        let next = next.map(|waiter| waiter.ticket);
        // The record has the first token with the value of a candidate that has left since.
        // No other candidate is granted this token.
        if let Lease::Held { tokens, recorded, publishing: Some(_), .. } = &mut self.lease
            && wanted
            && recorded.take_if(|recorded| next != Some(*recorded)).is_some()
        {
            _ = tokens.take();
        }
        match &mut self.lease {
            Lease::None if wanted => self.acquire_lease(cx),
            // Safety rule 6: no grant on an expired lease.
            Lease::Held { id, renewal: Some(renewal), .. } if !renewal.may_grant(cx.now) => {
                let id = *id;
                self.release_lease(id, cx);
            }
            Lease::Held { id, renewal, linger_until, publishing, recorded, .. } if !wanted => {
                let lingers =
                    may_linger(renewal.is_some(), recorded.is_none(), publishing.is_some());
                let linger = if lingers { cx.settings.linger } else { Duration::ZERO };
                let until = leasehold_rules::linger_until(*linger_until, cx.now, linger);
                *linger_until = Some(until);
                if linger.is_zero() || cx.now >= until {
                    let id = *id;
                    self.release_lease(id, cx);
                }
            }
            Lease::Held { id, tokens, awaits_tokens, recorded, .. } if !*awaits_tokens => {
                match tokens.take() {
                    Some(token) => {
                        let recorded = recorded.take();
                        self.grant_next(token, recorded, cx);
                    }
                    None => {
                        *awaits_tokens = true;
                        let call = StoreCall::NextTokens(self.name.clone(), *id);
                        cx.out.push(Effect::Call(cx.lock, call));
                    }
                }
            }
            _ => {}
        }
    }

    /// Grants the lock to the first waiter with a stream. `recorded` is the waiter that
    /// the record names as the holder, with this token.
    fn grant_next(&mut self, token: Token, recorded: Option<Ticket>, cx: &mut Cx<'_>) {
        let Some(mut waiter) = self.queue.as_mut().and_then(|queue| queue.pop_connected()) else {
            return;
        };
        let lingered = match &mut self.lease {
            Lease::Held { linger_until, .. } => linger_until.take().is_some(),
            _ => false,
        };
        let source = match (recorded, lingered) {
            (Some(_), _) => Source::Lease,
            (None, true) => Source::Linger,
            (None, false) => Source::Handoff,
        };
        let (since, now) = (waiter.since, cx.now);
        self.trace = waiter.trace;
        self.on_removed(&mut waiter, cx);
        self.grant = Some(Grant {
            session: waiter.session,
            holder: waiter.holder,
            handle: Handle::new(cx.entropy.bits()),
            token,
            request: waiter.request,
            since: cx.now,
            hold_until: waiter.max_hold_time.map(|time| cx.now + time),
            end_cause: None,
            value: waiter.value.take(),
            ends_at: None,
            trace: waiter.trace,
        });
        self.journal_grant(cx, |grant| Fact::Granted {
            token: grant.token,
            waited: now.since(since),
            source,
            is_leader: grant.value.is_some(),
        });
        self.reply_granted(cx);
        if recorded != Some(waiter.ticket) {
            self.publish_holder(cx);
        }
        self.refuse_without_wait(Refusal::Held, cx);
    }

    /// Responds to the acquire that the grant belongs to.
    fn reply_granted(&self, cx: &mut Cx<'_>) {
        if let Some(grant) = &self.grant {
            cx.out.push(Effect::Granted {
                session: grant.session,
                request: grant.request,
                lock: cx.lock,
                handle: grant.handle,
                token: grant.token,
                limit: leasehold_rules::grant_limit(self.limit(), cx.now),
            });
        }
    }

    /// Refuses the waiters that do not wait, and sends new waiters their position.
    pub(super) fn reply_to_waiters(&mut self, cx: &mut Cx<'_>) {
        let refusal = match &self.lease {
            Lease::Waiting(waiting) => Refusal::Blocker(waiting.blocker.clone()),
            _ if self.grant.is_some() => Refusal::Held,
            Lease::Releasing { retry_at: Some(_), .. } => {
                let why = "the previous lease could not be released yet".to_owned();
                let error = lease::Error::Unavailable { why, retry_after: None };
                Refusal::Blocker(Blocker::StoreError(error))
            }
            // A call is pending that may lead to a grant.
            _ => return,
        };
        self.refuse_without_wait(refusal, cx);
        let Some(queue) = &mut self.queue else { return };
        for (position, waiter) in queue.unnotified() {
            waiter.last_sent_position = position;
            let (session, request) = (waiter.session, waiter.request);
            if cx.settings.journal.is_on() {
                let (name, holder) = (self.name.clone(), Some(Arc::clone(&waiter.holder)));
                let entry = Entry { name, holder, trace: waiter.trace, fact: Fact::Queued };
                cx.out.push(Effect::Journal(entry));
            }
            cx.out.push(Effect::Queued { session, request, lock: cx.lock, position });
        }
    }

    /// Acquires the lease for the first waiter with a stream.
    pub(super) fn acquire_lease(&mut self, cx: &mut Cx<'_>) {
        let Some(waiter) = self.queue.as_ref().and_then(|queue| queue.first_connected()) else {
            self.lease = Lease::None;
            return;
        };
        let id = LeaseId::new(leasehold_rules::fresh_lease_id(cx.entropy));
        let duration = waiter.lease_duration;
        let (holder, recorded) = (Arc::clone(&waiter.holder), waiter.ticket);
        let (value, is_campaign) = (waiter.value.clone(), waiter.value.is_some());
        self.trace = waiter.trace;
        let previous = match std::mem::replace(&mut self.lease, Lease::None) {
            Lease::Waiting(waiting) => Some(waiting),
            _ => None,
        };
        let (name, is_retry) = (self.name.clone(), previous.is_some());
        let params = AcquireParams { name, id, duration, holder, value, is_retry };
        self.lease = Lease::Acquiring {
            id,
            duration,
            previous,
            recorded,
            is_campaign,
            jumps: Duration::ZERO,
            since: cx.now,
        };
        cx.out.push(Effect::Call(cx.lock, StoreCall::Acquire(params)));
    }

    pub(super) fn release_lease(&mut self, id: LeaseId, cx: &mut Cx<'_>) {
        self.release_lease_then(id, None, cx);
    }

    /// Releases the lease. `then` is the blocker afterwards, if any.
    pub(super) fn release_lease_then(
        &mut self,
        id: LeaseId,
        then: Option<Box<Waiting>>,
        cx: &mut Cx<'_>,
    ) {
        let duration = match &self.lease {
            Lease::Acquiring { duration, .. } => *duration,
            Lease::Held { renewal: Some(renewal), .. } => renewal.duration(),
            _ => cx.settings.lease_duration,
        };
        let expires_at = cx.now + duration;
        self.lease = Lease::Releasing { id, retry_at: None, failures: 0, expires_at, then };
        cx.out.push(Effect::Call(cx.lock, StoreCall::Release(self.name.clone(), id)));
    }

    fn refuse_without_wait(&mut self, why: Refusal, cx: &mut Cx<'_>) {
        self.refuse_while(why, Queue::remove_without_wait, cx);
    }

    pub(super) fn refuse_while(
        &mut self,
        why: Refusal,
        mut take: impl FnMut(&mut Queue) -> Option<Waiter>,
        cx: &mut Cx<'_>,
    ) {
        while let Some(mut waiter) = self.queue.as_deref_mut().and_then(&mut take) {
            self.journal_refusal(&waiter, &why, cx);
            self.on_removed(&mut waiter, cx);
            let (session, request) = (waiter.session, waiter.request);
            cx.out.push(Effect::Refused {
                session,
                request,
                name: self.name.clone(),
                why: why.clone(),
            });
        }
    }

    /// Cleans up after a waiter was removed from the queue.
    pub(super) fn on_removed(&mut self, waiter: &mut Waiter, cx: &mut Cx<'_>) {
        cx.schedule.rearm(Due::Wait(cx.lock, waiter.ticket), &mut waiter.armed, None);
        if let Some(mut empty) = self.queue.take_if(|queue| queue.is_empty()) {
            empty.shrink();
            *cx.spare = Some(empty);
        }
    }
}

//! The next step of a lock: whom it is granted to, which waiters are refused, and
//! whether its lease is acquired, kept or released.

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

impl Lock {
    /// Does what can be done now: hands the lock to the next, asks for the
    /// lease, or gives it up.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        if self.grant.is_some() {
            return;
        }
        let wanted = self.is_wanted();
        let next = self.queue.as_ref().and_then(|queue| queue.first_present());
        let next = next.map(|waiter| waiter.ticket);
        // The store shows the first token with the value of a candidate who has gone since:
        // nobody else is granted this token.
        if let Lease::Held { tokens, shown, publishing: Some(_), .. } = &mut self.lease
            && wanted
            && shown.take_if(|shown| next != Some(*shown)).is_some()
        {
            _ = tokens.take();
        }
        match &mut self.lease {
            Lease::None if wanted => self.acquire_lease(cx),
            // Safety rule 6: nothing starts on a lease that has run out.
            Lease::Held { id, renewal: Some(renewal), .. } if !renewal.may_grant(cx.now) => {
                let id = *id;
                self.give_up_lease(id, cx);
            }
            Lease::Held { id, renewal, linger_until, publishing, shown, .. } if !wanted => {
                // Others would take it for the lead of one who has resigned, or
                // wait for one who never held it.
                let lingers = may_linger(renewal.is_some(), shown.is_none(), publishing.is_some());
                let linger = if lingers { cx.settings.linger } else { Duration::ZERO };
                let until = leasehold_rules::linger_until(*linger_until, cx.now, linger);
                *linger_until = Some(until);
                if linger.is_zero() || cx.now >= until {
                    let id = *id;
                    self.give_up_lease(id, cx);
                }
            }
            Lease::Held { id, tokens, awaits_tokens, shown, .. } if !*awaits_tokens => {
                match tokens.take() {
                    Some(token) => {
                        let shown = shown.take();
                        self.grant_next(token, shown, cx);
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

    /// Hands the lock to the first who is there; `shown` is whom the store shows
    /// to others as its holder, with this token.
    fn grant_next(&mut self, token: Token, shown: Option<Ticket>, cx: &mut Cx<'_>) {
        let Some(mut waiter) = self.queue.as_mut().and_then(|queue| queue.pop_present()) else {
            return;
        };
        if let Lease::Held { linger_until, .. } = &mut self.lease {
            *linger_until = None;
        }
        self.left(&mut waiter, cx);
        self.grant = Some(Grant {
            session: waiter.session,
            holder: waiter.holder,
            handle: Handle::new(cx.entropy.bits()),
            token,
            request: waiter.request,
            since: cx.now,
            hold_until: waiter.max_hold_time.map(|longest| cx.now + longest),
            end_cause: None,
            value: waiter.value.take(),
            ends_at: None,
        });
        self.reply_granted(cx);
        if shown != Some(waiter.ticket) {
            self.show_holder(cx);
        }
        self.refuse_without_wait(Refusal::Held, cx);
    }

    /// Answers the acquire that the grant belongs to.
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

    /// Those who are not served at once are refused or told their place.
    pub(super) fn reply_to_waiters(&mut self, cx: &mut Cx<'_>) {
        let refusal = match &self.lease {
            Lease::Waiting(waiting) => Refusal::Blocker(waiting.blocker.clone()),
            _ if self.grant.is_some() => Refusal::Held,
            Lease::Releasing { retry_at: Some(_), .. } => {
                let why = "the lease from before could not be released yet".to_owned();
                let trouble = lease::Error::Unavailable { why, retry_after: None };
                Refusal::Blocker(Blocker::StoreError(trouble))
            }
            // An answer is awaited, and may bring the lock.
            _ => return,
        };
        self.refuse_without_wait(refusal, cx);
        let Some(queue) = &mut self.queue else { return };
        for (position, waiter) in queue.unnotified() {
            waiter.last_sent_position = position;
            let (session, request) = (waiter.session, waiter.request);
            cx.out.push(Effect::Queued { session, request, lock: cx.lock, position });
        }
    }

    pub(super) fn acquire_lease(&mut self, cx: &mut Cx<'_>) {
        let Some(waiter) = self.queue.as_ref().and_then(|queue| queue.first_present()) else {
            self.lease = Lease::None;
            return;
        };
        let id = LeaseId::new(leasehold_rules::fresh_lease_id(cx.entropy));
        let duration = waiter.lease_duration;
        let (holder, shown) = (Arc::clone(&waiter.holder), waiter.ticket);
        let (value, campaigns) = (waiter.value.clone(), waiter.value.is_some());
        let before = match std::mem::replace(&mut self.lease, Lease::None) {
            Lease::Waiting(waiting) => Some(waiting),
            _ => None,
        };
        let (name, again) = (self.name.clone(), before.is_some());
        let params = AcquireParams { name, id, duration, holder, value, again };
        self.lease =
            Lease::Acquiring { id, duration, before, shown, campaigns, jumps: Duration::ZERO };
        cx.out.push(Effect::Call(cx.lock, StoreCall::Acquire(params)));
    }

    pub(super) fn give_up_lease(&mut self, id: LeaseId, cx: &mut Cx<'_>) {
        self.give_up_lease_then(id, None, cx);
    }

    pub(super) fn give_up_lease_then(
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
        let over_at = cx.now + duration;
        self.lease = Lease::Releasing { id, retry_at: None, failures: 0, over_at, then };
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
            self.left(&mut waiter, cx);
            let (session, request) = (waiter.session, waiter.request);
            cx.out.push(Effect::Refused {
                session,
                request,
                name: self.name.clone(),
                why: why.clone(),
            });
        }
    }

    /// Tidies up after a waiter that is out of the queue.
    pub(super) fn left(&mut self, waiter: &mut Waiter, cx: &mut Cx<'_>) {
        cx.schedule.rearm(Due::Wait(cx.lock, waiter.ticket), &mut waiter.armed, None);
        if let Some(mut empty) = self.queue.take_if(|queue| queue.is_empty()) {
            empty.shrink();
            *cx.spare = Some(empty);
        }
    }
}

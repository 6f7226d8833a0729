//! One lock: its lease, its grant and its queue. Sans-IO: it takes an event and a
//! time, and appends effects.

use std::time::Duration;

use leasehold_rules::may_be_served;
use leasehold_store::{Breaker, LeaseId, StoreCall};
use leasehold_time::Moment;
use leasehold_types::LockName;

use super::{
    Effect, Refusal,
    grant::{Cause, Grant},
    lease::{Blocker, Lease},
    publish::Publishing,
    queue::{Queue, Ticket, WaitLimit, Waiter},
    renew::{RenewalState, Step},
    table::{Cx, Due},
};
use crate::journal::{Fact, TraceKey};

/// Cause of a loss after a clock jump.
const CLOCK_JUMP_MESSAGE: &str = "this machine was paused, and its lease may have expired";

/// Lock with a holder, a waiter or a pending call.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) name: LockName,
    pub(super) lease: Lease,
    pub(super) grant: Option<Grant>,
    /// Wait queue. None if there is no waiter, as for most locks.
    pub(super) queue: Option<Box<Queue>>,
    /// Timer of the lock, as set in the schedule.
    pub(super) armed: Option<Moment>,
    /// Trace of the last acquire for which the lease was acquired or used.
    pub(super) trace: Option<TraceKey>,
}

impl Lock {
    pub(super) const fn new(name: LockName) -> Self {
        Self { name, lease: Lease::None, grant: None, queue: None, armed: None, trace: None }
    }

    /// Returns whether the lock has no holder, no waiter and no pending call.
    pub(super) fn is_idle(&self) -> bool {
        self.grant.is_none() && self.queue.is_none() && !self.is_lease_in_use()
    }

    /// Returns whether the lock has waiters while its lease is unavailable, or while no
    /// waiter has a stream.
    pub(super) const fn is_blocked(&self) -> bool {
        self.queue.is_some() && !self.is_lease_in_use()
    }

    /// Returns whether the lease is held, or a call for it is pending.
    const fn is_lease_in_use(&self) -> bool {
        !matches!(self.lease, Lease::None | Lease::Waiting(_))
    }

    /// Returns whether this daemon holds the lease, or is releasing it.
    pub(super) const fn has_lease(&self) -> bool {
        matches!(self.lease, Lease::Held { .. } | Lease::Releasing { .. })
    }

    pub(super) const fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// Returns the ID of the lease, if this daemon holds it.
    pub(super) const fn held_id(&self) -> Option<LeaseId> {
        match &self.lease {
            Lease::Held { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// Returns the publication state, if this daemon holds the lease.
    pub(super) const fn publishing(&mut self) -> Option<&mut Option<Box<Publishing>>> {
        match &mut self.lease {
            Lease::Held { publishing, .. } => Some(publishing),
            _ => None,
        }
    }

    /// Returns whether there is a waiter with a stream.
    pub(super) fn is_wanted(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.first_connected().is_some())
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    pub(super) fn blocker(&self) -> Option<&Blocker> {
        match &self.lease {
            Lease::Waiting(waiting) | Lease::Acquiring { previous: Some(waiting), .. } => {
                Some(&waiting.blocker)
            }
            _ => None,
        }
    }

    /// Returns the time at which the grant ends, even if its session continues, unless the
    /// lease is renewed. No validity extends beyond it.
    pub(super) fn limit(&self) -> Option<Moment> {
        self.limited_by(RenewalState::valid_until)
    }

    /// Returns the latest time until which the holder may act, by the validities that it
    /// was sent before.
    pub(super) fn holder_acts_until(&self) -> Option<Moment> {
        self.limited_by(RenewalState::holder_acts_until)
    }

    fn limited_by(&self, end: impl Fn(&RenewalState) -> Moment) -> Option<Moment> {
        let hold = self.grant.as_ref().and_then(|grant| grant.hold_until);
        let lease = match &self.lease {
            Lease::Held { renewal: Some(renewal), .. } => Some(end(renewal)),
            _ => None,
        };
        earlier(hold, lease)
    }

    /// Returns the time of the lock's next timer.
    pub(super) fn due(&self) -> Option<Moment> {
        let lease = match &self.lease {
            Lease::None | Lease::Acquiring { .. } => None,
            Lease::Waiting(waiting) => self.queue.is_some().then_some(waiting.until),
            Lease::Held { renewal, linger_until, publishing, .. } => {
                let publishing = publishing.as_ref().and_then(|publishing| publishing.due());
                let renewal = renewal.as_ref().map(|renewal| renewal.due());
                // A waiter may be waiting for tokens.
                let linger = linger_until.filter(|_| !self.is_wanted());
                earlier(earlier(renewal, linger), publishing)
            }
            Lease::Releasing { retry_at, .. } => *retry_at,
        };
        let grant = self.grant.as_ref().and_then(|grant| earlier(grant.ends_at, grant.hold_until));
        earlier(lease, grant)
    }

    /// Appends a waiter to the queue, and grants it the lock if possible.
    pub(super) fn join(&mut self, waiter: Waiter, cx: &mut Cx<'_>) {
        let ticket = waiter.ticket;
        let (session, request) = (waiter.session, waiter.request);
        let queue = self.queue.get_or_insert_with(|| cx.spare.take().unwrap_or_default());
        queue.push(waiter);
        if let Some(waiter) = queue.get_mut(ticket)
            && let WaitLimit::Until(moment) = waiter.wait_limit
        {
            cx.schedule.rearm(Due::Wait(cx.lock, ticket), &mut waiter.armed, Some(moment));
        }
        cx.out.push(Effect::Joined { session, request, lock: cx.lock, ticket });
        self.advance(cx);
        self.reply_to_waiters(cx);
    }

    /// Removes a waiter. The caller responds to its session.
    pub(super) fn leave(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        let waiter = self.queue.as_mut().and_then(|queue| queue.remove(ticket));
        if let Some(mut waiter) = waiter {
            let now = cx.now;
            self.journal_waiter(&waiter, cx, |waiter| Fact::Canceled {
                waited: now.since(waiter.since),
            });
            self.on_removed(&mut waiter, cx);
            self.advance(cx);
        }
    }

    /// Records whether a waiter's session has a stream.
    pub(super) fn set_connected(&mut self, ticket: Ticket, connected: bool, cx: &mut Cx<'_>) {
        if let Some(waiter) = self.queue.as_mut().and_then(|queue| queue.get_mut(ticket)) {
            waiter.connected = may_be_served(connected);
            self.advance(cx);
        }
    }

    /// Returns a waiter's position, which counts as sent to its client, and whether
    /// it differs from the one that was sent before.
    pub(super) fn take_position(&mut self, ticket: Ticket) -> Option<(u32, bool)> {
        let queue = self.queue.as_mut()?;
        let position = queue.position(ticket)?;
        let waiter = queue.get_mut(ticket)?;
        let before = std::mem::replace(&mut waiter.last_sent_position, position);
        Some((position, before != position))
    }

    /// Refuses a waiter whose maximum time to wait has ended.
    pub(super) fn time_out(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        if let Some(waiter) = self.queue.as_mut().and_then(|queue| queue.get_mut(ticket)) {
            waiter.armed = None;
            let why = Refusal::TimedOut(self.blocker().cloned());
            self.refuse_while(why, |queue| queue.remove(ticket), cx);
            self.advance(cx);
        }
    }

    /// Ends the grant, because the holder released it or its session has ended. If there
    /// is a cause, the client is notified of the loss.
    pub(super) fn free(&mut self, cause: Option<Cause>, cx: &mut Cx<'_>) {
        match cause {
            Some(cause) => {
                self.journal_loss(&cause, cx);
                self.notify_lost(cause, cx);
            }
            None => {
                let now = cx.now;
                self.journal_grant(cx, |grant| Fact::Released {
                    token: grant.token,
                    held_for: now.since(grant.since),
                });
            }
        }
        self.fail_proclaims(cx);
        self.grant = None;
        self.advance(cx);
    }

    /// Declares the grant lost and notifies the holder. The lock is free when the holder
    /// releases it, and no later than at `at`.
    pub(super) fn end(&mut self, at: Moment, cause: Cause, cx: &mut Cx<'_>) {
        self.fail_proclaims(cx);
        self.journal_loss(&cause, cx);
        if let Some(grant) = &mut self.grant {
            let was_active = grant.is_active();
            grant.ends_at = earlier(grant.ends_at, Some(at));
            if was_active {
                self.notify_lost(cause, cx);
            }
        }
    }

    fn journal_loss(&self, cause: &Cause, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.journal_grant(cx, |grant| Fact::Lost {
            token: grant.token,
            held_for: now.since(grant.since),
            cause: Box::new(cause.clone()),
        });
    }

    fn notify_lost(&self, cause: Cause, cx: &mut Cx<'_>) {
        if let Some(Grant { session, handle, .. }) = self.grant {
            cx.out.push(Effect::Lost { session, handle, name: self.name.clone(), cause });
        }
    }

    /// Limits the grant to `at`. The cause applies if the grant is not released before.
    pub(super) fn limit_grant(&mut self, at: Moment, cause: Cause, cx: &mut Cx<'_>) {
        if let Cause::SteppedDown { by, reason } = &cause {
            let ends_in = at.since(cx.now);
            self.journal_grant(cx, |grant| Fact::StepDownRequested {
                token: grant.token,
                breaker: Box::new(Breaker { by: by.clone(), reason: reason.clone() }),
                ends_in,
            });
        }
        if let Some(grant) = &mut self.grant
            && grant.hold_until.is_none_or(|until| at < until)
        {
            grant.hold_until = Some(at);
            grant.end_cause = Some(Box::new(cause));
        }
    }

    /// Refuses all waiters.
    pub(super) fn refuse_all(&mut self, why: Refusal, cx: &mut Cx<'_>) {
        self.refuse_while(why, Queue::pop, cx);
        self.advance(cx);
    }

    /// Runs the timers that are due.
    pub(super) fn tick(&mut self, cx: &mut Cx<'_>) {
        while let Lease::Held { id, renewal: Some(renewal), .. } = &mut self.lease {
            let id = *id;
            match renewal.step(cx.now) {
                Some(Step::Renew) => {
                    let call = StoreCall::Renew(self.name.clone(), id, renewal.duration());
                    cx.out.push(Effect::Call(cx.lock, call));
                }
                Some(Step::ClockJumped) => {
                    let at = renewal.deadline();
                    self.end(at, Cause::LeaseLost { why: CLOCK_JUMP_MESSAGE.into() }, cx);
                }
                Some(Step::Warn) => {
                    let until = renewal.valid_until();
                    if let Some(grant) = self.grant.as_ref().filter(|grant| grant.is_active()) {
                        let (session, handle) = (grant.session, grant.handle);
                        let name = self.name.clone();
                        cx.out.push(Effect::AtRisk { session, handle, name, until });
                        let left = until.since(cx.now);
                        self.journal_grant(cx, |grant| Fact::AtRisk { token: grant.token, left });
                    }
                }
                Some(Step::Lose) => self.lose_lease(id, cx),
                None => break,
            }
        }
        if let Some(grant) = &mut self.grant
            && grant.hold_until.is_some_and(|at| cx.now >= at)
        {
            let cause = grant.end_cause.take().map_or(Cause::MaxHoldTime, |cause| *cause);
            self.end(cx.now, cause, cx);
        }
        self.tick_publishing(cx);
        self.remove_ended_grant(cx);
        match &mut self.lease {
            Lease::Waiting(waiting) if cx.now >= waiting.until => {
                self.acquire_lease(cx);
            }
            Lease::Releasing { id, retry_at, .. } if retry_at.is_some_and(|at| cx.now >= at) => {
                *retry_at = None;
                let call = StoreCall::Release(self.name.clone(), *id);
                cx.out.push(Effect::Call(cx.lock, call));
            }
            _ => {}
        }
        self.advance(cx);
    }

    /// Subtracts a clock jump from the validity of the lease (safety rule 5). Neither the
    /// lock nor the lease is released before the holder has released its grant or has
    /// reached the deadline that it knows, because the jump may only mean that the wall
    /// clock was set.
    pub(super) fn clock_jumped(&mut self, by: Duration, cx: &mut Cx<'_>) {
        if let Lease::Acquiring { jumps, .. } = &mut self.lease {
            *jumps = jumps.saturating_add(by);
        }
        if let Lease::Held { renewal: Some(renewal), .. } = &mut self.lease {
            renewal.add_jump(by, cx.now);
            self.tick(cx);
        }
    }

    /// Ends the grant and releases the lease, whose deadline has passed. The deadline of
    /// the holder is not later.
    fn lose_lease(&mut self, id: LeaseId, cx: &mut Cx<'_>) {
        self.end(cx.now, Cause::LeaseLost { why: "its lease was not renewed in time".into() }, cx);
        self.release_lease(id, cx);
    }

    /// Removes a lost grant whose deadline has passed.
    fn remove_ended_grant(&mut self, cx: &mut Cx<'_>) {
        if let Some(grant) =
            self.grant.take_if(|grant| grant.ends_at.is_some_and(|at| cx.now >= at))
        {
            let (session, handle) = (grant.session, grant.handle);
            cx.out.push(Effect::Ended { session, handle });
        }
    }
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

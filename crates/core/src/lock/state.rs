//! One lock: its lease, its grant and its queue. Pure: it is told what happened
//! and when, and says what to do.

mod answer;

use std::{sync::Arc, time::Duration};

use super::{
    Call, Cx, Due, Effect, Refusal,
    grant::{Cause, Grant, Handle},
    publish::Publishing,
    queue::{Patience, Queue, Ticket, Waiter},
    renew::{Step, Term},
};
use leasehold_rules::{may_be_served, may_linger};
use leasehold_store as lease;
use leasehold_store::{LeaseId, LeaseInfo, Value};
use leasehold_time::Moment;
use leasehold_types::{LockName, Token, TokenRange};

/// How long to wait at first before a lease that another daemon holds is asked
/// for again.
const FIRST_POLL: Duration = Duration::from_millis(250);

/// Why a grant is lost after the clock has leapt.
const LEAPT: &str = "this machine was paused, and its lease may have expired";

/// The longest that a store may ask to be left alone.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// A lock that is held or waited for.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) name: LockName,
    pub(super) lease: Lease,
    pub(super) grant: Option<Grant>,
    /// None if nobody waits, as for most locks.
    queue: Option<Box<Queue>>,
    /// When the schedule will call, as it was told.
    pub(super) armed: Option<Moment>,
}

/// What is known of the storage lease. One call is under way at most, except
/// that a renewal may be.
#[derive(Debug)]
pub(super) enum Lease {
    /// Not ours, and not asked for.
    None,
    /// Asked for.
    Acquiring {
        id: LeaseId,
        duration: Duration,
        /// What was in the way the last time, if it is not the first: it most
        /// likely still is.
        before: Option<Box<Waiting>>,
        /// For whom: the store shows this one to others.
        shown: Ticket,
        /// Whether as a leader.
        campaigns: bool,
        /// How far the clock has leapt since it was asked for: so much less is
        /// left of it.
        leapt: Duration,
    },
    /// Not to be had now: asked for again later.
    Waiting(Box<Waiting>),
    /// Ours.
    Held {
        id: LeaseId,
        tokens: TokenRange,
        /// None if it lasts as long as the process.
        term: Option<Box<Term>>,
        /// More tokens were asked for.
        asking: bool,
        /// Set since nobody holds or wants the lock: until then it is kept, unless
        /// somebody is granted it. Whoever waits in vain meanwhile changes nothing.
        linger_until: Option<Moment>,
        /// Whom the store shows as its first holder, until there is one.
        shown: Option<Ticket>,
        /// What others are to see, once it was more than a plain lock.
        publishing: Option<Box<Publishing>>,
    },
    /// Being given up; tried until the store says so.
    Releasing {
        id: LeaseId,
        retry_at: Option<Moment>,
        failures: u32,
        /// When the lease has run out by itself, where leases do.
        over_at: Moment,
        /// What to wait for after that, if anything.
        then: Option<Box<Waiting>>,
    },
}

#[derive(Debug)]
pub(super) struct Waiting {
    until: Moment,
    polls: u32,
    obstacle: Obstacle,
}

/// What is seen of a lock from outside, to be compared with what was seen
/// before. Values by where they are: each new one is somewhere else.
#[derive(PartialEq, Eq)]
pub(super) struct Shown {
    token: Option<Token>,
    ends_at: Option<Moment>,
    value: Option<usize>,
    elsewhere: Option<(Option<TokenRange>, Option<Token>)>,
    value_elsewhere: Option<usize>,
    waiting: usize,
}

/// Why the lease is not to be had.
#[derive(Clone, Debug)]
pub enum Obstacle {
    /// Another daemon has it.
    Elsewhere {
        /// For whom, if that is known.
        by: Option<Arc<LeaseInfo>>,
    },
    /// The store said no.
    Trouble(lease::Error),
}

impl Lock {
    pub(super) const fn new(name: LockName) -> Self {
        Self { name, lease: Lease::None, grant: None, queue: None, armed: None }
    }

    /// Nobody holds it, nobody waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.grant.is_none() && self.queue.is_none() && !self.may_be_ours()
    }

    /// Waited for, while the lease is not to be had or nobody is there to ask
    /// for it.
    pub(super) const fn is_stranded(&self) -> bool {
        self.queue.is_some() && !self.may_be_ours()
    }

    /// The lease is ours, or may be.
    const fn may_be_ours(&self) -> bool {
        !matches!(self.lease, Lease::None | Lease::Waiting(_))
    }

    /// The lease is ours, and perhaps being given up.
    pub(super) const fn is_ours(&self) -> bool {
        matches!(self.lease, Lease::Held { .. } | Lease::Releasing { .. })
    }

    pub(super) const fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// What is seen of it from outside, to notice changes.
    pub(super) fn shown(&self) -> Shown {
        let address = |value: &Value| value.as_ptr() as usize;
        let grant = self.grant.as_ref();
        let elsewhere = match self.obstacle() {
            Some(Obstacle::Elsewhere { by: Some(info) }) => Some(info),
            _ => None,
        };
        Shown {
            token: grant.map(|grant| grant.token),
            ends_at: grant.and_then(|grant| grant.ends_at),
            value: grant.and_then(|grant| grant.value.as_ref()).map(address),
            elsewhere: elsewhere.map(|info| (info.tokens, info.leader)),
            value_elsewhere: elsewhere.and_then(|info| info.value.as_ref()).map(address),
            waiting: self.waiting(),
        }
    }

    /// The lease that is ours.
    pub(super) const fn held_id(&self) -> Option<LeaseId> {
        match &self.lease {
            Lease::Held { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// What is yet to be shown of the hold, if the lease is ours.
    pub(super) const fn publishing(&mut self) -> Option<&mut Option<Box<Publishing>>> {
        match &mut self.lease {
            Lease::Held { publishing, .. } => Some(publishing),
            _ => None,
        }
    }

    /// Somebody waits, and is there to be granted it.
    fn is_wanted(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.first_present().is_some())
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    pub(super) fn obstacle(&self) -> Option<&Obstacle> {
        match &self.lease {
            Lease::Waiting(waiting) | Lease::Acquiring { before: Some(waiting), .. } => {
                Some(&waiting.obstacle)
            }
            _ => None,
        }
    }

    /// When the grant ends unless the lease is renewed, whatever its session
    /// does: no promise reaches further.
    pub(super) fn limit(&self) -> Option<Moment> {
        self.limited_by(Term::certain_until)
    }

    /// Until when its holder may count on the grant at the most, by what it was
    /// promised before.
    pub(super) fn promised_until(&self) -> Option<Moment> {
        self.limited_by(Term::holder_acts_until)
    }

    fn limited_by(&self, end: impl Fn(&Term) -> Moment) -> Option<Moment> {
        let hold = self.grant.as_ref().and_then(|grant| grant.hold_until);
        let lease = match &self.lease {
            Lease::Held { term: Some(term), .. } => Some(end(term)),
            _ => None,
        };
        earlier(hold, lease)
    }

    /// When something must be done without having been asked.
    pub(super) fn due(&self) -> Option<Moment> {
        let lease = match &self.lease {
            Lease::None | Lease::Acquiring { .. } => None,
            Lease::Waiting(waiting) => self.queue.is_some().then_some(waiting.until),
            Lease::Held { term, linger_until, publishing, .. } => {
                let publishing = publishing.as_ref().and_then(|publishing| publishing.due());
                let term = term.as_ref().map(|term| term.due());
                // Not while somebody waits for tokens to come.
                let linger = linger_until.filter(|_| !self.is_wanted());
                earlier(earlier(term, linger), publishing)
            }
            Lease::Releasing { retry_at, .. } => *retry_at,
        };
        let grant = self.grant.as_ref().and_then(|grant| earlier(grant.ends_at, grant.hold_until));
        earlier(lease, grant)
    }

    /// A waiter joins, and is served if it is its turn.
    pub(super) fn join(&mut self, waiter: Waiter, cx: &mut Cx<'_>) {
        let ticket = waiter.ticket;
        let (session, request) = (waiter.session, waiter.request);
        let queue = self.queue.get_or_insert_with(|| cx.spare.take().unwrap_or_default());
        queue.push(waiter);
        if let Some(waiter) = queue.get_mut(ticket)
            && let Patience::Until(moment) = waiter.patience
        {
            cx.schedule.rearm(Due::Wait(cx.lock, ticket), &mut waiter.armed, Some(moment));
        }
        cx.out.push(Effect::Waits { session, request, lock: cx.lock, ticket });
        self.advance(cx);
        self.settle(cx);
    }

    /// A waiter leaves; its session has been or will be answered.
    pub(super) fn leave(&mut self, ticket: Ticket, cx: &mut Cx<'_>) -> Option<Waiter> {
        let mut waiter = self.queue.as_mut()?.remove(ticket)?;
        self.left(&mut waiter, cx);
        self.advance(cx);
        Some(waiter)
    }

    /// A waiter's session has lost its stream, or has one again.
    pub(super) fn set_present(&mut self, ticket: Ticket, present: bool, cx: &mut Cx<'_>) {
        if let Some(waiter) = self.queue.as_mut().and_then(|queue| queue.get_mut(ticket)) {
            waiter.present = may_be_served(present);
            self.advance(cx);
        }
    }

    /// Where a waiter stands, if that has changed since it was last told.
    pub(super) fn position_news(&mut self, ticket: Ticket) -> Option<u32> {
        let queue = self.queue.as_mut()?;
        let position = queue.position(ticket)?;
        let waiter = queue.get_mut(ticket)?;
        if waiter.told == position {
            return None;
        }
        waiter.told = position;
        Some(position)
    }

    /// Forgets what a waiter was told, so that it will be told again.
    pub(super) fn forget_told(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.queue.as_mut().and_then(|queue| queue.get_mut(ticket)) {
            waiter.told = 0;
        }
    }

    /// A waiter's patience has ended.
    pub(super) fn give_up(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        if let Some(waiter) = self.queue.as_mut().and_then(|queue| queue.get_mut(ticket)) {
            waiter.armed = None;
            let why = Refusal::TimedOut(self.obstacle().cloned());
            self.refuse_while(why, |queue| queue.remove(ticket), cx);
            self.advance(cx);
        }
    }

    /// The holder lets go, or its session has ended.
    pub(super) fn free(&mut self, cx: &mut Cx<'_>) -> Option<Grant> {
        self.fail_proclaims(cx);
        let grant = self.grant.take();
        self.advance(cx);
        grant
    }

    /// The grant is lost: the holder is told, and the lock is free when it lets
    /// go, at the latest at `at`.
    pub(super) fn end(&mut self, at: Moment, cause: Cause, cx: &mut Cx<'_>) {
        self.fail_proclaims(cx);
        if let Some(grant) = &mut self.grant {
            let told = grant.ends_at.is_some();
            grant.ends_at = earlier(grant.ends_at, Some(at));
            if !told {
                let (session, handle) = (grant.session, grant.handle);
                cx.out.push(Effect::Lost { session, handle, name: self.name.clone(), cause });
            }
        }
    }

    /// The grant ends by itself at that moment, or before.
    pub(super) fn limit_grant(&mut self, at: Moment, cause: Cause) {
        if let Some(grant) = &mut self.grant
            && grant.hold_until.is_none_or(|until| at < until)
        {
            grant.hold_until = Some(at);
            grant.over_because = Some(Box::new(cause));
        }
    }

    /// Refuses everyone who waits.
    pub(super) fn refuse_all(&mut self, why: Refusal, cx: &mut Cx<'_>) {
        self.refuse_while(why, Queue::pop, cx);
        self.advance(cx);
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, cx: &mut Cx<'_>) {
        while let Lease::Held { id, term: Some(term), .. } = &mut self.lease {
            let id = *id;
            match term.step(cx.now) {
                Some(Step::Renew) => {
                    let call = Call::Renew { id, duration: term.duration() };
                    cx.out.push(Effect::Call { lock: cx.lock, call });
                }
                Some(Step::Doubt) => {
                    let at = term.deadline();
                    self.end(at, Cause::LeaseLost { why: LEAPT.into() }, cx);
                }
                Some(Step::Warn) => {
                    let until = term.certain_until();
                    if let Some(grant) = self.grant.as_ref().filter(|grant| grant.ends_at.is_none())
                    {
                        let (session, handle) = (grant.session, grant.handle);
                        let name = self.name.clone();
                        cx.out.push(Effect::AtRisk { session, handle, name, until });
                    }
                }
                Some(Step::Lose) => self.lose_lease(id, cx),
                None => break,
            }
        }
        if let Some(grant) = &mut self.grant
            && grant.hold_until.is_some_and(|at| cx.now >= at)
        {
            let cause = grant.over_because.take().map_or(Cause::HeldTooLong, |cause| *cause);
            self.end(cx.now, cause, cx);
        }
        self.tick_publishing(cx);
        self.bury(cx);
        match &mut self.lease {
            Lease::Waiting(waiting) if cx.now >= waiting.until => {
                self.ask(cx);
            }
            Lease::Releasing { id, retry_at, .. } if retry_at.is_some_and(|at| cx.now >= at) => {
                *retry_at = None;
                cx.out.push(Effect::Call { lock: cx.lock, call: Call::Release { id: *id } });
            }
            _ => {}
        }
        self.advance(cx);
    }

    /// The wall clock has run ahead of ours by this much: so much less may be
    /// left of a lease than our clock shows (safety rule 5). But perhaps somebody
    /// only set the clock, and the holder goes on until the deadline that it
    /// knows: until then, or until it lets go, neither the lock nor the lease is
    /// given away.
    pub(super) fn leapt(&mut self, by: Duration, cx: &mut Cx<'_>) {
        if let Lease::Acquiring { leapt, .. } = &mut self.lease {
            *leapt = leapt.saturating_add(by);
        }
        if let Lease::Held { term: Some(term), .. } = &mut self.lease {
            term.leap(by, cx.now);
            self.tick(cx);
        }
    }

    /// The lease's deadline has passed: so has its holder's.
    fn lose_lease(&mut self, id: LeaseId, cx: &mut Cx<'_>) {
        self.end(cx.now, Cause::LeaseLost { why: "its lease was not renewed in time".into() }, cx);
        self.give_up_lease(id, cx);
    }

    /// Removes a lost grant whose holder must have stopped by now.
    fn bury(&mut self, cx: &mut Cx<'_>) {
        if let Some(grant) =
            self.grant.take_if(|grant| grant.ends_at.is_some_and(|at| cx.now >= at))
        {
            let (session, handle) = (grant.session, grant.handle);
            cx.out.push(Effect::Ended { session, handle });
        }
    }

    /// Does what can be done now: hands the lock to the next, asks for the
    /// lease, or gives it up.
    fn advance(&mut self, cx: &mut Cx<'_>) {
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
            Lease::None if wanted => self.ask(cx),
            // Safety rule 6: nothing starts on a lease that has run out.
            Lease::Held { id, term: Some(term), .. } if !term.may_grant(cx.now) => {
                let id = *id;
                self.give_up_lease(id, cx);
            }
            Lease::Held { id, term, linger_until, publishing, shown, .. } if !wanted => {
                // Others would take it for the lead of one who has resigned, or
                // wait for one who never held it.
                let lingers = may_linger(term.is_some(), shown.is_none(), publishing.is_some());
                let linger = if lingers { cx.settings.linger } else { Duration::ZERO };
                let until = leasehold_rules::linger_until(*linger_until, cx.now, linger);
                *linger_until = Some(until);
                if linger.is_zero() || cx.now >= until {
                    let id = *id;
                    self.give_up_lease(id, cx);
                }
            }
            Lease::Held { id, tokens, asking, shown, .. } if !*asking => match tokens.take() {
                Some(token) => {
                    let shown = shown.take();
                    self.grant_next(token, shown, cx);
                }
                None => {
                    *asking = true;
                    let call = Call::NextTokens { id: *id };
                    cx.out.push(Effect::Call { lock: cx.lock, call });
                }
            },
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
            handle: Handle::new(cx.entropy.bits()),
            token,
            request: waiter.request,
            since: cx.now,
            hold_until: waiter.longest_hold.map(|longest| cx.now + longest),
            over_because: None,
            value: waiter.value.take(),
            ends_at: None,
        });
        self.tell_granted(cx);
        if shown != Some(waiter.ticket) {
            self.show_holder(cx);
        }
        self.refuse_impatient(Refusal::Held, cx);
    }

    /// Answers the acquire that the grant belongs to.
    fn tell_granted(&self, cx: &mut Cx<'_>) {
        if let Some(grant) = &self.grant {
            cx.out.push(Effect::Granted {
                session: grant.session,
                request: grant.request,
                lock: cx.lock,
                handle: grant.handle,
                token: grant.token,
                limit: self.limit(),
            });
        }
    }

    /// Those who are not served at once are refused or told their place.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        let refusal = match &self.lease {
            Lease::Waiting(waiting) => Refusal::Obstacle(waiting.obstacle.clone()),
            _ if self.grant.is_some() => Refusal::Held,
            Lease::Releasing { retry_at: Some(_), .. } => {
                let why = "the lease from before could not be released yet".to_owned();
                let trouble = lease::Error::Unavailable { why, retry_after: None };
                Refusal::Obstacle(Obstacle::Trouble(trouble))
            }
            // An answer is awaited, and may bring the lock.
            _ => return,
        };
        self.refuse_impatient(refusal, cx);
        let Some(queue) = &mut self.queue else { return };
        for (position, waiter) in queue.untold() {
            waiter.told = position;
            let (session, request) = (waiter.session, waiter.request);
            cx.out.push(Effect::Queued { session, request, lock: cx.lock, position });
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>) {
        let Some(waiter) = self.queue.as_ref().and_then(|queue| queue.first_present()) else {
            self.lease = Lease::None;
            return;
        };
        let id = LeaseId::new(leasehold_rules::fresh_lease_id(cx.entropy));
        let duration = waiter.lease_duration;
        let (session, shown) = (waiter.session, waiter.ticket);
        let (value, campaigns) = (waiter.value.clone(), waiter.value.is_some());
        let before = match std::mem::replace(&mut self.lease, Lease::None) {
            Lease::Waiting(waiting) => Some(waiting),
            _ => None,
        };
        let call = Call::Acquire { id, session, duration, again: before.is_some(), value };
        self.lease =
            Lease::Acquiring { id, duration, before, shown, campaigns, leapt: Duration::ZERO };
        cx.out.push(Effect::Call { lock: cx.lock, call });
    }

    fn give_up_lease(&mut self, id: LeaseId, cx: &mut Cx<'_>) {
        self.give_up_lease_then(id, None, cx);
    }

    fn give_up_lease_then(&mut self, id: LeaseId, then: Option<Box<Waiting>>, cx: &mut Cx<'_>) {
        let duration = match &self.lease {
            Lease::Acquiring { duration, .. } => *duration,
            Lease::Held { term: Some(term), .. } => term.duration(),
            _ => cx.settings.lease_duration,
        };
        let over_at = cx.now + duration;
        self.lease = Lease::Releasing { id, retry_at: None, failures: 0, over_at, then };
        cx.out.push(Effect::Call { lock: cx.lock, call: Call::Release { id } });
    }

    fn refuse_impatient(&mut self, why: Refusal, cx: &mut Cx<'_>) {
        self.refuse_while(why, Queue::remove_impatient, cx);
    }

    fn refuse_while(
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
    fn left(&mut self, waiter: &mut Waiter, cx: &mut Cx<'_>) {
        cx.schedule.rearm(Due::Wait(cx.lock, waiter.ticket), &mut waiter.armed, None);
        if let Some(mut empty) = self.queue.take_if(|queue| queue.is_empty()) {
            empty.shrink();
            *cx.spare = Some(empty);
        }
    }
}

/// When to ask again for a lease that is not to be had.
fn wait(obstacle: Obstacle, polls: u32, cx: &mut Cx<'_>) -> Box<Waiting> {
    let wait = match &obstacle {
        Obstacle::Trouble(lease::Error::Recovering { remaining }) => *remaining,
        Obstacle::Trouble(lease::Error::Unavailable { retry_after: Some(after), .. }) => {
            (*after).min(LONGEST_REST).max(backoff(polls, cx))
        }
        _ => backoff(polls, cx),
    };
    Box::new(Waiting { until: cx.now + wait, polls, obstacle })
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The wait after this many failures in a row.
pub(super) fn backoff(failures: u32, cx: &mut Cx<'_>) -> Duration {
    cx.entropy.jitter((FIRST_POLL * (1 << failures.min(8))).min(cx.settings.poll_interval))
}

//! Grants in time: L1 after a death, L2 after a release, L5 in any case.
//!
//! A lock is *vacant* while no client's hold of it is valid. If somebody waits
//! in a calm stretch of a vacancy for longer than a bound, that is a violation;
//! the time counts from the latest of: what made it vacant, when the waiter
//! asked, when it became calm. What else starts the time anew:
//! - Whoever waited and died or gave up may have been granted the lock without
//!   hearing of it; so may a daemon that died have taken the lease. After a death
//!   L2 is not expected any more; nor if the one who died did so shortly before, its
//!   session may have lasted until then, and its daemon may not have known that it is
//!   to be passed over. Giving up counts for L2 only, and only if it
//!   waited when the lock was released, so that those who come and go do not hide a
//!   lock that nobody gets. But if it was at another daemon that may have taken the
//!   lease (for one who came later: if that is recorded), a hand-over is not local
//!   any more. And whoever came later, but took the lease elsewhere, was quicker than
//!   those whose daemons poll: between daemons there is no queue. An acquire that its
//!   client canceled may have been granted by a daemon that kept the lease, which then
//!   keeps the lease for as long again.
//! - Whoever lets go of what was lost releases it; unless others have died since, who
//!   may have had the lock by then.
//! - A release that was made before it became calm may have reached nobody yet:
//!   then L2 leaves at least the time for recovery.
//!
//! L5 is measured from hold to hold: there is no queue between daemons, so a
//! waiter may be passed over there as often as others are quicker. L5 leaves at
//! least the time for a takeover.

use crate::{
    Bounds, Kind, Nanos,
    format::Seconds,
    index::{Answer, How, Index, Pos, Span},
    report::Report,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    for lock in 0..index.locks.len() {
        if index.locks[lock].acquires.is_empty() {
            continue;
        }
        let vacancies = vacancies(index, lock);
        let mut waiters = Waiters::new(index, lock);
        let mut told = vec![false; vacancies.len()];
        for (nth, vacancy) in vacancies.iter().enumerate() {
            for stretch in &vacancy.stretches {
                told[nth] |= waiters.check(stretch, false, report);
            }
        }
        waiters = Waiters::new(index, lock);
        for (vacancy, _) in vacancies.iter().zip(told).filter(|(_, told)| !told) {
            for stretch in &vacancy.unheld {
                waiters.check(stretch, true, report);
            }
        }
    }
}

/// A lock was held by nobody, or by somebody whose daemon was dead.
pub(crate) struct Vacancy {
    /// By what L1 and L2 expect, one after the other.
    pub(crate) stretches: Vec<Stretch>,
    /// By what L5 expects.
    unheld: Vec<Stretch>,
    /// The hold that ended it.
    pub(crate) next: Option<usize>,
}

/// Part of a vacancy.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) span: Span,
    pub(crate) cause: Cause,
    /// The hold before, the entry that made it vacant, and the one from which the
    /// time counts.
    last: Option<usize>,
    vacated: Option<Pos>,
    since: Option<Pos>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// At this place, unless another may have the lease by now.
    Released(Option<usize>),
    /// The holder, while its daemon lives on; its daemon; or others later who may
    /// have had the lock by then.
    Died { client: bool, daemon: bool },
    /// It was lost and not let go yet, ran out, or was never held.
    Unclear,
}

impl Cause {
    /// What L1 allows after this; zero if nothing is expected.
    fn takeover(client: bool, daemon: bool, bounds: &Bounds) -> Nanos {
        match (client, daemon) {
            (true, true) if bounds.expiry > 0 && bounds.takeover > 0 => {
                bounds.expiry.max(bounds.takeover)
            }
            (true, false) => bounds.expiry,
            (false, true) => bounds.takeover,
            _ => 0,
        }
    }
}

/// Something after which the time counts anew.
struct Shake {
    at: Nanos,
    pos: Pos,
    what: Shook,
}

enum Shook {
    /// This acquire.
    GaveUp(usize),
    ClientDied(u32),
    DaemonDied(usize),
    /// Of this hold, which had been lost.
    LetGo(usize),
}

fn shakes(index: &Index<'_>, lock: usize) -> Vec<Shake> {
    let lock = &index.locks[lock];
    let mut shakes = Vec::new();
    for &waiter in &lock.acquires {
        let acquire = &index.acquires[waiter];
        if let Some(Answer::Refused { point, .. }) = acquire.answer {
            shakes.push(Shake { at: point.at, pos: point.pos, what: Shook::GaveUp(waiter) });
        }
        if let Some(gone) = acquire.gone.filter(|gone| gone.client) {
            let what = Shook::ClientDied(acquire.client);
            shakes.push(Shake { at: gone.point.at, pos: gone.point.pos, what });
        }
    }
    for (number, hold) in lock.holds.iter().map(|&hold| (hold, &index.holds[hold])) {
        if let Some(let_go) = hold.let_go {
            shakes.push(Shake { at: let_go.at, pos: let_go.pos, what: Shook::LetGo(number) });
        }
        let lost = hold.end.is_some_and(|end| end.how == How::Lost);
        // With its daemon, its session was gone before.
        let daemon = index.daemon_of(hold.acquire).died;
        let unheard = hold.died.filter(|died| {
            hold.released.is_none_or(|done| done > *died) && daemon.is_none_or(|dead| dead > *died)
        });
        if let Some(died) = unheard.filter(|_| !lost) {
            let what = Shook::ClientDied(hold.client);
            shakes.push(Shake { at: died.at, pos: died.pos, what });
        }
    }
    for daemon in lock.places.iter().map(|&place| index.places[place].daemon) {
        if let Some(died) = index.daemons[daemon].died {
            shakes.push(Shake { at: died.at, pos: died.pos, what: Shook::DaemonDied(daemon) });
        }
    }
    shakes.sort_unstable_by_key(|shake| shake.pos);
    shakes
}

/// When a lock was vacant, in order.
pub(crate) fn vacancies(index: &Index<'_>, lock: usize) -> Vec<Vacancy> {
    let shakes = shakes(index, lock);
    let mut shakes = shakes.as_slice();
    let mut vacancies = Vec::new();
    // Of the holds so far, the one that lasts longest.
    let mut last: Option<usize> = None;
    let none = (None, Span { from: index.end, to: index.end });
    let holds = index.locks[lock].holds.iter().map(|&hold| (Some(hold), held(index, hold)));
    for (next, span) in holds.chain([none]) {
        let from = last.map_or(0, |last| held(index, last).to);
        if from < span.from || next.is_none() {
            let gap = Span { from, to: span.from };
            vacancies.push(vacancy(index, last, gap, next, &mut shakes));
        }
        if last.is_none_or(|last| held(index, last).to <= span.to) {
            last = next;
        }
    }
    vacancies
}

fn held(index: &Index<'_>, hold: usize) -> Span {
    let hold = &index.holds[hold];
    Span { from: hold.granted.at, to: hold.over.at.min(index.end).max(hold.granted.at) }
}

fn vacancy(
    index: &Index<'_>,
    last: Option<usize>,
    gap: Span,
    next: Option<usize>,
    shakes: &mut &[Shake],
) -> Vacancy {
    let mut now = Stretch { span: gap, cause: Cause::Unclear, last, vacated: None, since: None };
    let holder = last.map(|last| {
        let hold = &index.holds[last];
        let place = index.acquires[hold.acquire].place;
        if let Some(end) = hold.ended_by() {
            now.since = Some(end.point.pos);
            now.cause = match end.how {
                How::Released | How::Freed => Cause::Released(Some(place)),
                How::Died => Cause::Died { client: true, daemon: false },
                How::Lost => Cause::Unclear,
            };
        }
        // Whatever its client still did: the dead daemon's lease has to run out.
        let died = index.daemons[index.places[place].daemon].died;
        if let Some(died) = died.filter(|died| died.at <= gap.from) {
            now.cause = Cause::Died { client: false, daemon: true };
            now.since = Some(died.pos);
            now.span.from = died.at.max(hold.granted.at);
        }
        (hold.client, index.places[place].daemon)
    });
    if matches!(now.cause, Cause::Released(_)) && dead_waiter(index, last, gap.from) {
        now.cause = Cause::Unclear;
    }
    now.vacated = now.since;
    let mut unheld_now = Stretch { span: gap, ..now };
    let (mut stretches, mut unheld) = (Vec::new(), Vec::new());
    let mut deaths = matches!(now.cause, Cause::Died { .. });
    let passed = shakes.partition_point(|shake| shake.at < now.span.from);
    *shakes = &shakes[passed..];
    let within = shakes.partition_point(|shake| shake.at < gap.to);
    for shake in &shakes[..within] {
        let (own, client) = match shake.what {
            Shook::GaveUp(waiter) => {
                if let Cause::Released(at) = now.cause {
                    let waiter = &index.acquires[waiter];
                    let waited = now.vacated.is_some_and(|pos| waiter.invoked.pos < pos);
                    let taken = waiter
                        .may_have_leased(index, Span { from: gap.from, to: shake.at })
                        && (waited || index.has_leases);
                    let cause = Cause::Released(at.filter(|at| !taken || *at == waiter.place));
                    let granted = waiter.may_have_crossed(index, shake.at);
                    if waited || granted || waiter.leased_anew(index, shake.at) {
                        cut(&mut now, shake, cause, &mut stretches);
                    } else {
                        now.cause = cause;
                    }
                }
                continue;
            }
            Shook::LetGo(hold) => {
                if last == Some(hold) && !deaths && !dead_waiter(index, last, shake.at) {
                    let place = index.acquires[index.holds[hold].acquire].place;
                    cut(&mut now, shake, Cause::Released(Some(place)), &mut stretches);
                    now.vacated = now.since;
                }
                continue;
            }
            // What it released while something was wrong may be held up by that still.
            Shook::ClientDied(client) => {
                let own = holder.is_some_and(|(holder, _)| holder == client);
                (own && index.calm_since(shake.at) <= gap.from, true)
            }
            Shook::DaemonDied(daemon) => {
                (holder.is_some_and(|(_, holder)| holder == daemon), false)
            }
        };
        deaths = true;
        let cause = match now.cause {
            Cause::Died { client: before, daemon } => {
                Cause::Died { client: before || client, daemon: daemon || !client }
            }
            _ if own => Cause::Died { client, daemon: !client },
            _ => Cause::Unclear,
        };
        cut(&mut now, shake, cause, &mut stretches);
        if shake.at >= gap.from {
            cut(&mut unheld_now, shake, cause, &mut unheld);
        }
    }
    stretches.push(now);
    unheld.push(unheld_now);
    Vacancy { stretches, unheld, next }
}

/// Whether somebody who died not long before may have been waiting still, as far as
/// its daemon knew, and have been granted the lock. Not if that had seen the end of its
/// stream.
fn dead_waiter(index: &Index<'_>, last: Option<usize>, vacated: Nanos) -> bool {
    let Some(lock) = last.map(|last| index.holds[last].lock) else { return false };
    let mut acquires = index.locks[lock].acquires.iter().map(|&acquire| &index.acquires[acquire]);
    acquires.any(|acquire| {
        let absent = acquire.absent.is_some_and(|absent| absent.at <= vacated);
        acquire.gone.filter(|gone| gone.client && !absent).is_some_and(|gone| {
            gone.point.at <= vacated && vacated - gone.point.at < index.bounds.expiry
        })
    })
}

fn cut(now: &mut Stretch, shake: &Shake, cause: Cause, done: &mut Vec<Stretch>) {
    let mut before = *now;
    before.span.to = shake.at;
    if before.span.length() > 0 {
        done.push(before);
    }
    now.span.from = shake.at;
    now.cause = cause;
    now.since = Some(shake.pos);
}

/// Those who wait for a lock, while stretches are gone through in order.
struct Waiters<'i> {
    index: &'i Index<'i>,
    coming: &'i [usize],
    waiting: Vec<usize>,
}

impl<'i> Waiters<'i> {
    fn new(index: &'i Index<'i>, lock: usize) -> Self {
        Self { index, coming: &index.locks[lock].acquires, waiting: Vec::new() }
    }

    /// Whether somebody waited for too long.
    fn check(&mut self, stretch: &Stretch, recovery: bool, report: &mut Report) -> bool {
        let bounds = self.index.bounds;
        let least = match (recovery, stretch.cause) {
            (true, _) => bounds.recovery,
            (false, Cause::Died { client, daemon }) => Cause::takeover(client, daemon, bounds),
            (false, Cause::Released(_)) => match (bounds.local_handover, bounds.remote_handover) {
                (0, other) | (other, 0) => other,
                (local, remote) => local.min(remote),
            },
            (false, Cause::Unclear) => 0,
        };
        if least == 0 || stretch.span.length() <= least {
            return false;
        }
        let mut told = false;
        for calm in self.index.calm_in(stretch.span) {
            if calm.length() > least {
                self.gather(calm);
                // One waiter shows it: the one that has waited longest.
                let waiting = self.waiting.iter();
                told |= waiting
                    .copied()
                    .any(|waiter| too_long(self.index, stretch, calm, waiter, recovery, report));
            }
        }
        told
    }

    /// Those who wait at some time in this span. Spans come in order.
    fn gather(&mut self, span: Span) {
        let acquires = &self.index.acquires;
        let new = self.coming.partition_point(|&waiter| acquires[waiter].invoked.at < span.to);
        self.waiting.extend(&self.coming[..new]);
        self.coming = &self.coming[new..];
        self.waiting.retain(|&waiter| waits(self.index, waiter).to > span.from);
    }
}

fn waits(index: &Index<'_>, waiter: usize) -> Span {
    let acquire = &index.acquires[waiter];
    Span { from: acquire.invoked.at, to: acquire.over().map_or(index.end, |over| over.at) }
}

fn too_long(
    index: &Index<'_>,
    stretch: &Stretch,
    calm: Span,
    waiter: usize,
    recovery: bool,
    report: &mut Report,
) -> bool {
    let bounds = index.bounds;
    let acquire = &index.acquires[waiter];
    let mut waited = waits(index, waiter).and(calm);
    let (kind, limit) = match stretch.cause {
        _ if recovery => (Kind::L5, bounds.recovery.max(bounds.takeover).max(bounds.expiry)),
        Cause::Died { client, daemon } => (Kind::L1, Cause::takeover(client, daemon, bounds)),
        Cause::Released(place) => {
            let queued = acquire.queued.filter(|_| place == Some(acquire.place));
            let limit = match queued {
                Some(_) => bounds.local_handover,
                None => bounds.remote_handover,
            };
            waited.from = waited.from.max(queued.map_or(0, |queued| queued.at));
            // Whatever started the time anew meanwhile: that it was released counts.
            let vacated = stretch.vacated.map(|pos| index.entries[pos].at);
            let released = vacated.unwrap_or(stretch.span.from);
            let late = index.calm_since(calm.from) > released && limit > 0;
            (Kind::L2, if late { limit.max(bounds.recovery) } else { limit })
        }
        Cause::Unclear => return false,
    };
    if limit == 0 || waited.length() <= limit.saturating_add(bounds.skew) {
        return false;
    }
    // If the time counts from something else, L5 is no matter of who held it before.
    let before = stretch.last.filter(|_| kind != Kind::L5 || stretch.span.from == waited.from);
    let before = before.map(|last| &index.holds[last]);
    let excerpt = [
        before.map(|hold| index.acquires[hold.acquire].invoked.pos),
        before.map(|hold| hold.granted.pos),
        stretch.vacated.filter(|_| before.is_some()),
        stretch.since.filter(|_| before.is_some()),
        index.calmed_at(waited.from),
        Some(acquire.invoked.pos),
        acquire.over().map(|point| point.pos),
    ];
    report.add(kind, waited.from.saturating_add(limit), excerpt.into_iter().flatten(), || {
        let before = match (kind, stretch.last.map(|last| &index.holds[last])) {
            (Kind::L1, Some(hold)) => {
                format!(
                    ", whose holder (client {}, token {}) or its daemon was dead",
                    hold.client, hold.token
                )
            }
            (Kind::L2, Some(hold)) => {
                format!(", which client {} had released (token {})", hold.client, hold.token)
            }
            _ => String::new(),
        };
        format!(
            "client {} waited at daemon {} for lock {}{before}, and nobody was granted it from {} \
             to {}: longer than {}",
            acquire.client,
            index.daemon_of(waiter).id,
            index.locks[acquire.lock].id,
            Seconds(waited.from),
            Seconds(waited.to),
            Seconds(limit),
        )
    });
    true
}

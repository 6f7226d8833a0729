//! Grants in time: L1 after a death, L2 after a release, L5 in any case.
//!
//! A lock is *vacant* while no client's hold of it is valid. A waiter must not wait in a
//! calm stretch of a vacancy for longer than a bound. The time starts at the latest of the
//! end of the last hold, the waiter's acquire and the start of the calm span. These events
//! restart it:
//! - Death of a waiter or of a daemon. The waiter may have been granted the lock without
//!   receiving it, and the daemon may have acquired the lease. After a death, L2 does not
//!   apply. It does not apply either if a waiter died shortly before the release: its
//!   session may have lasted until then, and its daemon may not have known that it must
//!   skip the waiter.
//! - End of an acquire without a grant, for L2 only. It must have waited when the lock was
//!   released, so that acquires that come and go do not hide a lock without a grant. If it
//!   was at another daemon that may have acquired the lease, the handoff is no longer local.
//!   For a later acquire this requires recorded leases.
//! - A later acquire whose daemon acquired the lease before the polling daemons did, because
//!   there is no queue between daemons.
//! - A canceled acquire. A daemon that kept the lease may have granted it, and then keeps
//!   the lease for the linger period again.
//! - Release of a lost grant, unless a client or a daemon that may have had the lock has
//!   died since.
//!
//! A release before the calm span may not have been delivered yet. L2 then allows at least
//! the time for recovery.
//!
//! L5 applies from hold to hold. There is no queue between daemons, so later acquires at
//! other daemons may be granted first, any number of times. L5 allows at least the time for
//! a takeover.

use crate::{
    Bounds, Kind, Nanos,
    format::Seconds,
    index::{Answer, EndCause, Index, Pos, Span},
    report::Report,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    for lock in 0..index.locks.len() {
        if index.locks[lock].acquires.is_empty() {
            continue;
        }
        let vacancies = vacancies(index, lock);
        let mut waiters = Waiters::new(index, lock);
        let mut reported = vec![false; vacancies.len()];
        for (nth, vacancy) in vacancies.iter().enumerate() {
            for stretch in &vacancy.stretches {
                reported[nth] |= waiters.check(stretch, false, report);
            }
        }
        waiters = Waiters::new(index, lock);
        for (vacancy, _) in vacancies.iter().zip(reported).filter(|(_, reported)| !reported) {
            for stretch in &vacancy.unheld {
                waiters.check(stretch, true, report);
            }
        }
    }
}

/// Time in which a lock had no holder, or one whose daemon was dead.
pub(crate) struct Vacancy {
    /// Consecutive parts for L1 and L2.
    pub(crate) stretches: Vec<Stretch>,
    /// Consecutive parts for L5.
    unheld: Vec<Stretch>,
    /// The hold that ended it.
    pub(crate) next: Option<usize>,
}

/// Part of a vacancy.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) span: Span,
    pub(crate) cause: Cause,
    /// Preceding hold.
    last: Option<usize>,
    /// Entry that made the lock vacant.
    vacated: Option<Pos>,
    /// Entry at which the time starts.
    since: Option<Pos>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Released at this place, or at an unknown one if another daemon may have the lease.
    Released(Option<usize>),
    /// Death of the holder, of its daemon, or later of another client or daemon that may
    /// have had the lock by then.
    Died { client: bool, daemon: bool },
    /// Lost and not released yet, expired, or never held.
    Unknown,
}

impl Cause {
    /// Returns the limit of L1 after a death, or zero if L1 does not apply.
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

/// Event that restarts the time.
struct Reset {
    at: Nanos,
    pos: Pos,
    kind: ResetKind,
}

enum ResetKind {
    /// End of this acquire without a grant.
    AcquireEnded(usize),
    ClientDied(u32),
    DaemonDied(usize),
    /// Release of this hold, which was lost before.
    ReleasedAfterLoss(usize),
}

fn resets(index: &Index<'_>, lock: usize) -> Vec<Reset> {
    let lock = &index.locks[lock];
    let mut resets = Vec::new();
    for &waiter in &lock.acquires {
        let acquire = &index.acquires[waiter];
        if let Some(Answer::Refused { point, .. }) = acquire.answer {
            resets.push(Reset {
                at: point.at,
                pos: point.pos,
                kind: ResetKind::AcquireEnded(waiter),
            });
        }
        if let Some(gone) = acquire.gone.filter(|gone| gone.client) {
            let kind = ResetKind::ClientDied(acquire.client);
            resets.push(Reset { at: gone.point.at, pos: gone.point.pos, kind });
        }
    }
    for (number, hold) in lock.holds.iter().map(|&hold| (hold, &index.holds[hold])) {
        if let Some(release) = hold.late_release {
            resets.push(Reset {
                at: release.at,
                pos: release.pos,
                kind: ResetKind::ReleasedAfterLoss(number),
            });
        }
        let lost = hold.end.is_some_and(|end| end.cause == EndCause::Lost);
        // The death of its daemon ended its session before.
        let daemon = index.daemon_of(hold.acquire).died;
        let unreleased = hold.died.filter(|died| {
            hold.released.is_none_or(|done| done > *died) && daemon.is_none_or(|dead| dead > *died)
        });
        if let Some(died) = unreleased.filter(|_| !lost) {
            let kind = ResetKind::ClientDied(hold.client);
            resets.push(Reset { at: died.at, pos: died.pos, kind });
        }
    }
    for daemon in lock.places.iter().map(|&place| index.places[place].daemon) {
        if let Some(died) = index.daemons[daemon].died {
            resets.push(Reset { at: died.at, pos: died.pos, kind: ResetKind::DaemonDied(daemon) });
        }
    }
    resets.sort_unstable_by_key(|reset| reset.pos);
    resets
}

/// Returns the vacancies of a lock, in order.
pub(crate) fn vacancies(index: &Index<'_>, lock: usize) -> Vec<Vacancy> {
    let resets = resets(index, lock);
    let mut resets = resets.as_slice();
    let mut vacancies = Vec::new();
    // The hold that ends last so far.
    let mut last: Option<usize> = None;
    let none = (None, Span { from: index.end, to: index.end });
    let holds = index.locks[lock].holds.iter().map(|&hold| (Some(hold), held(index, hold)));
    for (next, span) in holds.chain([none]) {
        let from = last.map_or(0, |last| held(index, last).to);
        if from < span.from || next.is_none() {
            let gap = Span { from, to: span.from };
            vacancies.push(vacancy(index, last, gap, next, &mut resets));
        }
        if last.is_none_or(|last| held(index, last).to <= span.to) {
            last = next;
        }
    }
    vacancies
}

fn held(index: &Index<'_>, hold: usize) -> Span {
    let hold = &index.holds[hold];
    Span { from: hold.granted.at, to: hold.valid_to.at.min(index.end).max(hold.granted.at) }
}

fn vacancy(
    index: &Index<'_>,
    last: Option<usize>,
    gap: Span,
    next: Option<usize>,
    resets: &mut &[Reset],
) -> Vacancy {
    let mut now = Stretch { span: gap, cause: Cause::Unknown, last, vacated: None, since: None };
    let holder = last.map(|last| {
        let hold = &index.holds[last];
        let place = index.acquires[hold.acquire].place;
        if let Some(end) = hold.ended_by() {
            now.since = Some(end.point.pos);
            now.cause = match end.cause {
                EndCause::Released | EndCause::Freed => Cause::Released(Some(place)),
                EndCause::Died => Cause::Died { client: true, daemon: false },
                EndCause::Lost => Cause::Unknown,
            };
        }
        // The dead daemon's lease has to expire, even if its client released the lock.
        let died = index.daemons[index.places[place].daemon].died;
        if let Some(died) = died.filter(|died| died.at <= gap.from) {
            now.cause = Cause::Died { client: false, daemon: true };
            now.since = Some(died.pos);
            now.span.from = died.at.max(hold.granted.at);
        }
        (hold.client, index.places[place].daemon)
    });
    if matches!(now.cause, Cause::Released(_)) && dead_waiter(index, last, gap.from) {
        now.cause = Cause::Unknown;
    }
    now.vacated = now.since;
    let mut unheld_now = Stretch { span: gap, ..now };
    let (mut stretches, mut unheld) = (Vec::new(), Vec::new());
    let mut deaths = matches!(now.cause, Cause::Died { .. });
    let passed = resets.partition_point(|reset| reset.at < now.span.from);
    *resets = &resets[passed..];
    let within = resets.partition_point(|reset| reset.at < gap.to);
    for reset in &resets[..within] {
        let (own, client) = match reset.kind {
            ResetKind::AcquireEnded(waiter) => {
                if let Cause::Released(at) = now.cause {
                    let waiter = &index.acquires[waiter];
                    let waited = now.vacated.is_some_and(|pos| waiter.invoked.pos < pos);
                    let taken = waiter
                        .may_have_leased(index, Span { from: gap.from, to: reset.at })
                        && (waited || index.has_leases);
                    let cause = Cause::Released(at.filter(|at| !taken || *at == waiter.place));
                    let granted = waiter.may_have_crossed(index, reset.at);
                    if waited || granted || waiter.caused_lease(index, reset.at) {
                        split(&mut now, reset, cause, &mut stretches);
                    } else {
                        now.cause = cause;
                    }
                }
                continue;
            }
            ResetKind::ReleasedAfterLoss(hold) => {
                if last == Some(hold) && !deaths && !dead_waiter(index, last, reset.at) {
                    let place = index.acquires[index.holds[hold].acquire].place;
                    split(&mut now, reset, Cause::Released(Some(place)), &mut stretches);
                    now.vacated = now.since;
                }
                continue;
            }
            // A release during a fault may not have been delivered yet.
            ResetKind::ClientDied(client) => {
                let own = holder.is_some_and(|(holder, _)| holder == client);
                (own && index.calm_since(reset.at) <= gap.from, true)
            }
            ResetKind::DaemonDied(daemon) => {
                (holder.is_some_and(|(_, holder)| holder == daemon), false)
            }
        };
        deaths = true;
        let cause = match now.cause {
            Cause::Died { client: before, daemon } => {
                Cause::Died { client: before || client, daemon: daemon || !client }
            }
            _ if own => Cause::Died { client, daemon: !client },
            _ => Cause::Unknown,
        };
        split(&mut now, reset, cause, &mut stretches);
        if reset.at >= gap.from {
            split(&mut unheld_now, reset, cause, &mut unheld);
        }
    }
    stretches.push(now);
    unheld.push(unheld_now);
    Vacancy { stretches, unheld, next }
}

/// Returns true if a dead client may have been granted the lock: it died shortly before,
/// and its daemon had not detected the end of its stream.
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

fn split(now: &mut Stretch, reset: &Reset, cause: Cause, done: &mut Vec<Stretch>) {
    let mut before = *now;
    before.span.to = reset.at;
    if before.span.length() > 0 {
        done.push(before);
    }
    now.span.from = reset.at;
    now.cause = cause;
    now.since = Some(reset.pos);
}

/// Waiters of a lock during an iteration over stretches in order.
struct Waiters<'i> {
    index: &'i Index<'i>,
    later: &'i [usize],
    waiting: Vec<usize>,
}

impl<'i> Waiters<'i> {
    fn new(index: &'i Index<'i>, lock: usize) -> Self {
        Self { index, later: &index.locks[lock].acquires, waiting: Vec::new() }
    }

    /// Reports waiters that waited for too long. Returns true if there was one.
    fn check(&mut self, stretch: &Stretch, recovery: bool, report: &mut Report) -> bool {
        let bounds = self.index.bounds;
        let least = match (recovery, stretch.cause) {
            (true, _) => bounds.recovery,
            (false, Cause::Died { client, daemon }) => Cause::takeover(client, daemon, bounds),
            (false, Cause::Released(_)) => match (bounds.local_handoff, bounds.remote_handoff) {
                (0, other) | (other, 0) => other,
                (local, remote) => local.min(remote),
            },
            (false, Cause::Unknown) => 0,
        };
        if least == 0 || stretch.span.length() <= least {
            return false;
        }
        let mut reported = false;
        for calm in self.index.calm_in(stretch.span) {
            if calm.length() > least {
                self.gather(calm);
                // One waiter is enough evidence: the earliest acquire that waited too long.
                let waiting = self.waiting.iter();
                reported |= waiting
                    .copied()
                    .any(|waiter| too_long(self.index, stretch, calm, waiter, recovery, report));
            }
        }
        reported
    }

    /// Collects the acquires that wait at some time in this span. Spans must be in order.
    fn gather(&mut self, span: Span) {
        let acquires = &self.index.acquires;
        let new = self.later.partition_point(|&waiter| acquires[waiter].invoked.at < span.to);
        self.waiting.extend(&self.later[..new]);
        self.later = &self.later[new..];
        self.waiting.retain(|&waiter| waits(self.index, waiter).to > span.from);
    }
}

fn waits(index: &Index<'_>, waiter: usize) -> Span {
    let acquire = &index.acquires[waiter];
    Span { from: acquire.invoked.at, to: acquire.ended_at().map_or(index.end, |over| over.at) }
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
                Some(_) => bounds.local_handoff,
                None => bounds.remote_handoff,
            };
            waited.from = waited.from.max(queued.map_or(0, |queued| queued.at));
            // The time of the release decides, even if a later event restarted the time.
            let vacated = stretch.vacated.map(|pos| index.entries[pos].at);
            let released = vacated.unwrap_or(stretch.span.from);
            let late = index.calm_since(calm.from) > released && limit > 0;
            (Kind::L2, if late { limit.max(bounds.recovery) } else { limit })
        }
        Cause::Unknown => return false,
    };
    if limit == 0 || waited.length() <= limit.saturating_add(bounds.skew) {
        return false;
    }
    // L5 involves the preceding hold only if the time starts at its end.
    let before = stretch.last.filter(|_| kind != Kind::L5 || stretch.span.from == waited.from);
    let before = before.map(|last| &index.holds[last]);
    let excerpt = [
        before.map(|hold| index.acquires[hold.acquire].invoked.pos),
        before.map(|hold| hold.granted.pos),
        stretch.vacated.filter(|_| before.is_some()),
        stretch.since.filter(|_| before.is_some()),
        index.calmed_at(waited.from),
        Some(acquire.invoked.pos),
        acquire.ended_at().map(|point| point.pos),
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
            "client {} waited at daemon {} for lock {}{before}, and no client was granted it from \
             {} to {}: longer than {}",
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

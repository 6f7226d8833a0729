//! E1 to E4: states that observers of an election receive.
//!
//! A state has a rank: its token, then the number of its value under that token, where the
//! campaign's value precedes those of the proclaims. A state without a value is that of a
//! plain lock, or it has no leader. It has no rank.
//!
//! Two faults excuse an old state. After an operator restored an old blob, the storage
//! returns an old leader until a daemon has acquired the lease and stored its own record.
//! After a clock fault, or after an operator broke a lease in the storage, a daemon may
//! still consider a replaced leader as current.

use hashbrown::HashMap;

use crate::{
    Event, Kind, Nanos,
    format::Seconds,
    index::{About, Index, ObservedState, Observer, Point, Pos, Span},
    report::Report,
};

/// Maximum age of a state in a stream: a read of the storage with all its retries.
const MAX_READ_TIME: Nanos = 60_000_000_000;

/// Token and the number of the value under it.
type Rank = (u64, usize);

/// Leader that the storage has from this instant on.
#[derive(Clone, Copy)]
struct Evidence {
    point: Point,
    token: u64,
}

/// Acknowledged proclaim.
#[derive(Clone, Copy)]
struct Acknowledged {
    acknowledged: Point,
    invoked: Pos,
    hold: usize,
    rank: Rank,
}

#[derive(Default)]
struct Lock<'h> {
    /// By token: values in their order, with the time of the first request for each.
    values: HashMap<u64, Vec<(&'h str, Point)>>,
    /// Campaigns by value.
    campaigns: HashMap<&'h str, Vec<usize>>,
    /// Proclaims ordered by the time of the acknowledgment.
    acknowledged: Vec<Acknowledged>,
    /// Leaders ordered by time, with increasing tokens.
    visible: Vec<Evidence>,
    /// First tokens of holds and the daemons that stored them, ordered by time.
    stored: Vec<(Evidence, usize)>,
    /// Spans from an operator's change of the blob to the next record.
    tampered: Vec<Span>,
}

struct Elections<'i> {
    index: &'i Index<'i>,
    locks: Vec<Lock<'i>>,
    /// Holds by lock and token.
    owners: HashMap<(usize, u64), usize>,
}

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    if !index.has_elections {
        return;
    }
    let mut elections = Elections::new(index);
    let ranks: Vec<Vec<Option<Rank>>> = index
        .observers
        .iter()
        .map(|observer| {
            observer.states.iter().map(|state| elections.rank(observer, state, report)).collect()
        })
        .collect();
    elections.find_visible(&ranks);
    for (observer, ranks) in index.observers.iter().zip(&ranks) {
        if observer.is_stream {
            elections.regressions(observer, ranks, report);
            elections.missing_proclaims(observer, ranks, report);
        } else if let (Some(state), Some(Some(rank))) = (observer.states.first(), ranks.first()) {
            elections.stale_reads(observer, state, *rank, report);
        }
    }
}

impl<'i> Elections<'i> {
    fn new(index: &'i Index<'i>) -> Self {
        let mut locks: Vec<Lock<'_>> = index.locks.iter().map(|_| Lock::default()).collect();
        let mut owners = HashMap::new();
        for (at, acquire) in index.acquires.iter().enumerate() {
            if let Some((value, _)) = acquire.campaign {
                locks[acquire.lock].campaigns.entry(value).or_default().push(at);
            }
        }
        for (at, hold) in index.holds.iter().enumerate() {
            owners.insert((hold.lock, hold.token), at);
            let lock = &mut locks[hold.lock];
            // A campaign that was recorded as refused but is granted later is recorded
            // again. Observers may have received its value before that.
            let campaign = index.acquires[hold.acquire].campaign.map(|(value, invoked)| {
                let campaigns = lock.campaigns.get(value).into_iter().flatten();
                let acquires = campaigns.map(|&acquire| &index.acquires[acquire]);
                let own = acquires.filter(|acquire| acquire.client == hold.client);
                let first = own.filter_map(|acquire| acquire.campaign.map(|(_, at)| at)).min();
                (value, first.map_or(invoked, |first| first.min(invoked)))
            });
            lock.values.entry(hold.token).or_default().splice(0..0, campaign);
        }
        for proclaim in &index.proclaims {
            let hold = &index.holds[proclaim.hold];
            let lock = &mut locks[hold.lock];
            let values = lock.values.entry(hold.token).or_default();
            let rank = (hold.token, values.len());
            values.push((proclaim.value, proclaim.invoked));
            let (invoked, hold) = (proclaim.invoked.pos, proclaim.hold);
            let acknowledged = proclaim.acknowledged;
            lock.acknowledged.extend(acknowledged.map(|acknowledged| Acknowledged {
                acknowledged,
                invoked,
                hold,
                rank,
            }));
        }
        for (pos, entry) in index.entries.iter().enumerate() {
            match (&entry.event, index.about[pos]) {
                (Event::Tampered { .. }, About::Lock(lock)) => {
                    locks[lock].tampered.push(Span { from: entry.at, to: Nanos::MAX });
                }
                (&Event::Stored { token, .. }, About::Place(place)) if token > 0 => {
                    let lock = &mut locks[index.places[place].lock];
                    let point = Point { at: entry.at, pos };
                    lock.stored.push((Evidence { point, token }, index.places[place].daemon));
                    for span in lock.tampered.iter_mut().filter(|span| span.to == Nanos::MAX) {
                        span.to = entry.at;
                    }
                }
                _ => {}
            }
        }
        for lock in &mut locks {
            lock.acknowledged.sort_by_key(|proclaim| proclaim.acknowledged);
        }
        Self { index, locks, owners }
    }

    fn lock(&self, observer: &Observer<'_>) -> usize {
        self.index.places[observer.place].lock
    }

    /// Checks E1. Returns the rank of a state if its value is that of a leader.
    fn rank(
        &self,
        observer: &Observer<'_>,
        state: &ObservedState<'_>,
        report: &mut Report,
    ) -> Option<Rank> {
        let lock = self.lock(observer);
        let known = &self.locks[lock];
        let skew = self.index.bounds.skew;
        let owner = state.token.and_then(|token| self.owners.get(&(lock, token)).copied());
        let in_time = |invoked: Point| !state.point.certainly_before(invoked, skew);
        let campaign = |hold: usize| {
            let acquire = &self.index.acquires[self.index.holds[hold].acquire];
            acquire.campaign
        };
        let why = match (state.token, state.value, owner) {
            (Some(token), Some(value), Some(_)) => {
                let values = known.values.get(&token).map(Vec::as_slice).unwrap_or_default();
                let is_it = |(known, invoked): &(&str, Point)| *known == value && in_time(*invoked);
                match values.iter().rposition(is_it) {
                    Some(nth) => return Some((token, nth)),
                    None => "which its holder neither campaigned with nor proclaimed before",
                }
            }
            (Some(token), Some(value), None) => {
                // A client whose grant ended before it received it campaigns again.
                let mut campaigns = known.campaigns.get(value).into_iter().flatten();
                let is_it = |&at: &usize| {
                    let acquire = &self.index.acquires[at];
                    let granted = acquire.hold().map(|hold| self.index.holds[hold].token);
                    in_time(acquire.invoked) && granted.is_none_or(|granted| granted > token)
                };
                match campaigns.any(is_it) {
                    true => return Some((token, 0)),
                    false => "which is not the value of a campaign without a lower token",
                }
            }
            (None, Some(_), _) => "without a token",
            (Some(_), None, Some(hold)) if campaign(hold).is_some() => {
                "although its holder campaigned with a value"
            }
            _ => return None,
        };
        let holder = owner.map(|hold| &self.index.holds[hold]);
        let granted = holder.map(|hold| hold.granted.pos);
        let excerpt = granted.into_iter().chain([observer.opened.pos, state.point.pos]);
        report.add(Kind::E1, state.point.at, excerpt, || {
            format!("{} {}, {why}", self.subject(observer, state), describe(state))
        });
        None
    }

    /// Collects the leaders in the storage and the times from which it has them, according
    /// to acknowledgments and to the states that other daemons report.
    fn find_visible(&mut self, ranks: &[Vec<Option<Rank>>]) {
        let mut found: Vec<Vec<Evidence>> = vec![Vec::new(); self.locks.len()];
        for (lock, known) in self.locks.iter().enumerate() {
            let acknowledged = known.acknowledged.iter();
            found[lock].extend(
                acknowledged.map(|proclaim| Evidence {
                    point: proclaim.acknowledged,
                    token: proclaim.rank.0,
                }),
            );
        }
        for (observer, ranks) in self.index.observers.iter().zip(ranks) {
            let lock = self.lock(observer);
            for (state, rank) in observer.states.iter().zip(ranks) {
                let Some((token, _)) = *rank else { continue };
                let daemon = self.index.places[observer.place].daemon;
                if self.daemon_of(lock, token).is_some_and(|own| own != daemon) {
                    found[lock].push(Evidence { point: state.point, token });
                }
            }
        }
        for (known, mut found) in self.locks.iter_mut().zip(found) {
            found.sort_by_key(|evidence| evidence.point);
            for evidence in found {
                if known.visible.last().is_none_or(|last| last.token < evidence.token) {
                    known.visible.push(evidence);
                }
            }
        }
    }

    /// Returns the daemon that granted a token, if a client received the grant.
    fn daemon_of(&self, lock: usize, token: u64) -> Option<usize> {
        let hold = &self.index.holds[*self.owners.get(&(lock, token))?];
        Some(self.index.places[self.index.acquires[hold.acquire].place].daemon)
    }

    /// Checks E3 and E4 for a read.
    fn stale_reads(
        &self,
        observer: &Observer<'_>,
        state: &ObservedState<'_>,
        rank: Rank,
        report: &mut Report,
    ) {
        let lock = self.lock(observer);
        let known = &self.locks[lock];
        let skew = self.index.bounds.skew;
        let in_time = |point: Point| point.certainly_before(observer.opened, skew);
        let own = self.daemon_of(lock, rank.0);
        let visible = &known.visible[..known.visible.partition_point(|it| in_time(it.point))];
        let stored = known.stored.iter().filter(|(it, by)| in_time(it.point) && own != Some(*by));
        let stored = stored.map(|(it, _)| *it).filter(|_| own.is_some());
        let newest = visible.last().copied().into_iter().chain(stored).max_by_key(|it| it.token);
        if let Some(newer) = newest.filter(|newer| newer.token > rank.0) {
            if !state.ending && !self.is_excused(observer, rank.0, newer, state.point, 0) {
                let excerpt = [newer.point.pos, observer.opened.pos, state.point.pos];
                report.add(Kind::E4, state.point.at, excerpt, || {
                    format!(
                        "{} {}, after the storage had token {} at {}",
                        self.subject(observer, state),
                        describe(state),
                        newer.token,
                        Seconds(newer.point.at),
                    )
                });
            }
            return;
        }
        let acknowledged = known.acknowledged.iter().filter(|proclaim| {
            proclaim.rank.0 == rank.0 && in_time(proclaim.acknowledged) && proclaim.rank > rank
        });
        let Some(newer) = acknowledged.max_by_key(|proclaim| proclaim.rank) else { return };
        let evidence = Evidence { point: newer.acknowledged, token: rank.0 };
        if self.is_excused(observer, rank.0, evidence, state.point, 0) {
            return;
        }
        let excerpt = [newer.invoked, newer.acknowledged.pos, observer.opened.pos, state.point.pos];
        report.add(Kind::E3, state.point.at, excerpt, || {
            format!(
                "{} {}, although {:?} had been acknowledged at {}",
                self.subject(observer, state),
                describe(state),
                known.values[&rank.0][newer.rank.1].0,
                Seconds(newer.acknowledged.at),
            )
        });
    }

    /// Checks E2 for a stream.
    fn regressions(&self, observer: &Observer<'_>, ranks: &[Option<Rank>], report: &mut Report) {
        let mut latest: Option<(Rank, Point)> = None;
        for (state, rank) in observer.states.iter().zip(ranks) {
            let Some(rank) = *rank else { continue };
            match latest {
                Some((before, then)) if rank < before => {
                    let newer = Evidence { point: then, token: before.0 };
                    if self.is_excused(observer, rank.0, newer, state.point, MAX_READ_TIME) {
                        continue;
                    }
                    let excerpt = [observer.opened.pos, then.pos, state.point.pos];
                    report.add(Kind::E2, state.point.at, excerpt, || {
                        format!(
                            "{} {}, after a newer state with token {} at {}",
                            self.subject(observer, state),
                            describe(state),
                            before.0,
                            Seconds(then.at),
                        )
                    });
                }
                _ => latest = Some((rank, state.point)),
            }
        }
    }

    /// Checks E3 for a stream: a proclaim that was acknowledged in a calm span is reported
    /// in time.
    fn missing_proclaims(
        &self,
        observer: &Observer<'_>,
        ranks: &[Option<Rank>],
        report: &mut Report,
    ) {
        let limit = self.index.bounds.visibility;
        if limit == 0 {
            return;
        }
        let place = &self.index.places[observer.place];
        let daemon = &self.index.daemons[place.daemon];
        let ends = [observer.ended, daemon.died, daemon.broken];
        let end = ends.into_iter().flatten().map(|end| end.at).min().unwrap_or(Nanos::MAX);
        for proclaim in &self.locks[place.lock].acknowledged {
            let from = proclaim.acknowledged;
            let by = from.at.saturating_add(limit).saturating_add(self.index.bounds.skew);
            let hold = &self.index.holds[proclaim.hold];
            let mut calm = self.index.calm_in(Span { from: from.at, to: by });
            if observer.opened > from
                || by > end.min(self.index.end)
                || hold.valid_to.at <= by
                || hold.broken.is_some()
                || !calm.any(|calm| calm.from == from.at && calm.to == by)
            {
                continue;
            }
            let next = observer.states.partition_point(|state| state.point.at <= by);
            let current = next.checked_sub(1).and_then(|at| ranks[at]);
            if current.is_some_and(|rank| rank >= proclaim.rank) {
                continue;
            }
            let last = next.checked_sub(1).map(|at| observer.states[at].point.pos);
            let excerpt = [observer.opened.pos, proclaim.invoked, from.pos];
            report.add(Kind::E3, by, excerpt.into_iter().chain(last), || {
                format!(
                    "{:?} of lock {}, token {}, was acknowledged at {}, but a stream at daemon {} \
                     did not report it within {}",
                    self.locks[place.lock].values[&proclaim.rank.0][proclaim.rank.1].0,
                    self.index.locks[place.lock].id,
                    proclaim.rank.0,
                    Seconds(from.at),
                    daemon.id,
                    Seconds(limit),
                )
            });
        }
    }

    /// Returns true if a fault beyond the guarantees explains an older state.
    fn is_excused(
        &self,
        observer: &Observer<'_>,
        token: u64,
        newer: Evidence,
        at: Point,
        lag: Nanos,
    ) -> bool {
        let place = &self.index.places[observer.place];
        let own = self.daemon_of(place.lock, token);
        let is_broken =
            |daemon: usize| self.index.daemons[daemon].broken.is_some_and(|broken| broken <= at);
        let tampered = self.locks[place.lock]
            .tampered
            .iter()
            .any(|span| span.from <= at.at && newer.point.at <= span.to.saturating_add(lag));
        tampered
            || is_broken(place.daemon)
            || own.is_some_and(is_broken)
            || self.index.locks[place.lock].is_overruled(token, newer.token, at.at)
    }

    fn subject(&self, observer: &Observer<'_>, state: &ObservedState<'_>) -> String {
        let place = &self.index.places[observer.place];
        format!(
            "at {}, daemon {} reported for lock {}",
            Seconds(state.point.at),
            self.index.daemons[place.daemon].id,
            self.index.locks[place.lock].id
        )
    }
}

fn describe(state: &ObservedState<'_>) -> String {
    match (state.token, state.value) {
        (Some(token), Some(value)) => format!("token {token} with {value:?}"),
        (Some(token), None) => format!("token {token} without a value"),
        (None, Some(value)) => format!("{value:?}"),
        (None, None) => "no leader".to_owned(),
    }
}

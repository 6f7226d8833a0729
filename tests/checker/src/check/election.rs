//! E1 to E4: what observers of an election are shown.
//!
//! A state has a rank: its token, then the number of its value under that token, where
//! the campaign's value comes before those of the proclaims. A state without a value is
//! that of a plain lock or of nobody; it has no rank.
//!
//! An operator who restores an old blob makes the storage show an old leader, from when
//! a daemon has leased the blob until it has stored its own record. Clocks beyond the
//! assumed drift, and leases taken away in the storage, make a daemon believe in a
//! leader who has been replaced. None of that is held against the daemons.

use hashbrown::HashMap;

use crate::{
    Event, Kind, Nanos,
    format::Seconds,
    index::{About, Index, Observer, Point, Pos, Shown, Span},
    report::Report,
};

/// Maximum age of what a stream shows: a read of the storage with all its retries.
const MAX_READ_TIME: Nanos = 60_000_000_000;

/// Token, then the number of the value under it.
type Rank = (u64, usize);

/// A leader that the storage has from this moment on.
#[derive(Clone, Copy)]
struct Evidence {
    point: Point,
    token: u64,
}

/// An acknowledged proclaim.
#[derive(Clone, Copy)]
struct Acknowledged {
    acknowledged: Point,
    invoked: Pos,
    hold: usize,
    rank: Rank,
}

#[derive(Default)]
struct Lock<'h> {
    /// By token: values in their order, and when each was first asked for.
    values: HashMap<u64, Vec<(&'h str, Point)>>,
    /// By value: campaigns.
    campaigns: HashMap<&'h str, Vec<usize>>,
    /// By the time of the acknowledgment.
    acknowledged: Vec<Acknowledged>,
    /// By time, with increasing tokens.
    visible: Vec<Evidence>,
    /// By time: first tokens of holds, and the daemons that stored them.
    stored: Vec<(Evidence, usize)>,
    /// From an operator's change of the blob to the next record.
    tampered: Vec<Span>,
}

struct Elections<'i> {
    index: &'i Index<'i>,
    locks: Vec<Lock<'i>>,
    /// By lock and token.
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
            observer.shown.iter().map(|shown| elections.rank(observer, shown, report)).collect()
        })
        .collect();
    elections.find_visible(&ranks);
    for (observer, ranks) in index.observers.iter().zip(&ranks) {
        if observer.is_stream {
            elections.goes_back(observer, ranks, report);
            elections.not_visible(observer, ranks, report);
        } else if let (Some(shown), Some(Some(rank))) = (observer.shown.first(), ranks.first()) {
            elections.stale_read(observer, shown, *rank, report);
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
            // A campaign that was recorded as refused, and is granted all the same, is
            // recorded once more: its value may have been shown before that.
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

    /// E1. The rank of a state, if its value is that of a leader.
    fn rank(
        &self,
        observer: &Observer<'_>,
        shown: &Shown<'_>,
        report: &mut Report,
    ) -> Option<Rank> {
        let lock = self.lock(observer);
        let known = &self.locks[lock];
        let skew = self.index.bounds.skew;
        let owner = shown.token.and_then(|token| self.owners.get(&(lock, token)).copied());
        let in_time = |invoked: Point| !shown.point.certainly_before(invoked, skew);
        let campaign = |hold: usize| {
            let acquire = &self.index.acquires[self.index.holds[hold].acquire];
            acquire.campaign
        };
        let why = match (shown.token, shown.value, owner) {
            (Some(token), Some(value), Some(_)) => {
                let values = known.values.get(&token).map(Vec::as_slice).unwrap_or_default();
                let is_it = |(known, invoked): &(&str, Point)| *known == value && in_time(*invoked);
                match values.iter().rposition(is_it) {
                    Some(nth) => return Some((token, nth)),
                    None => "which its holder neither campaigned with nor proclaimed before",
                }
            }
            (Some(token), Some(value), None) => {
                // A grant that ends before its client hears of it is asked for again.
                let mut campaigns = known.campaigns.get(value).into_iter().flatten();
                let is_it = |&at: &usize| {
                    let acquire = &self.index.acquires[at];
                    let granted = acquire.hold().map(|hold| self.index.holds[hold].token);
                    in_time(acquire.invoked) && granted.is_none_or(|granted| granted > token)
                };
                match campaigns.any(is_it) {
                    true => return Some((token, 0)),
                    false => "which no campaign has that was not granted a lower token",
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
        let excerpt = granted.into_iter().chain([observer.opened.pos, shown.point.pos]);
        report.add(Kind::E1, shown.point.at, excerpt, || {
            format!("{} {}, {why}", self.whom(observer, shown), what(shown))
        });
        None
    }

    /// Collects from when on the storage has which leader, as others show.
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
            for (shown, rank) in observer.shown.iter().zip(ranks) {
                let Some((token, _)) = *rank else { continue };
                let daemon = self.index.places[observer.place].daemon;
                if self.daemon_of(lock, token).is_some_and(|own| own != daemon) {
                    found[lock].push(Evidence { point: shown.point, token });
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

    /// The daemon through which a token was granted, if a client was told of it.
    fn daemon_of(&self, lock: usize, token: u64) -> Option<usize> {
        let hold = &self.index.holds[*self.owners.get(&(lock, token))?];
        Some(self.index.places[self.index.acquires[hold.acquire].place].daemon)
    }

    /// E3 and E4 for a read.
    fn stale_read(
        &self,
        observer: &Observer<'_>,
        shown: &Shown<'_>,
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
            if !shown.ending && !self.is_excused(observer, rank.0, newer, shown.point, 0) {
                let excerpt = [newer.point.pos, observer.opened.pos, shown.point.pos];
                report.add(Kind::E4, shown.point.at, excerpt, || {
                    format!(
                        "{} {}, after the storage had token {} at {}",
                        self.whom(observer, shown),
                        what(shown),
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
        if self.is_excused(observer, rank.0, evidence, shown.point, 0) {
            return;
        }
        let excerpt = [newer.invoked, newer.acknowledged.pos, observer.opened.pos, shown.point.pos];
        report.add(Kind::E3, shown.point.at, excerpt, || {
            format!(
                "{} {}, although {:?} had been acknowledged at {}",
                self.whom(observer, shown),
                what(shown),
                known.values[&rank.0][newer.rank.1].0,
                Seconds(newer.acknowledged.at),
            )
        });
    }

    /// E2 for a stream.
    fn goes_back(&self, observer: &Observer<'_>, ranks: &[Option<Rank>], report: &mut Report) {
        let mut latest: Option<(Rank, Point)> = None;
        for (shown, rank) in observer.shown.iter().zip(ranks) {
            let Some(rank) = *rank else { continue };
            match latest {
                Some((before, then)) if rank < before => {
                    let newer = Evidence { point: then, token: before.0 };
                    if self.is_excused(observer, rank.0, newer, shown.point, MAX_READ_TIME) {
                        continue;
                    }
                    let excerpt = [observer.opened.pos, then.pos, shown.point.pos];
                    report.add(Kind::E2, shown.point.at, excerpt, || {
                        format!(
                            "{} {}, after a newer state with token {} at {}",
                            self.whom(observer, shown),
                            what(shown),
                            before.0,
                            Seconds(then.at),
                        )
                    });
                }
                _ => latest = Some((rank, shown.point)),
            }
        }
    }

    /// E3 for a stream: what was acknowledged in calm is shown in time.
    fn not_visible(&self, observer: &Observer<'_>, ranks: &[Option<Rank>], report: &mut Report) {
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
                || hold.over.at <= by
                || hold.broken.is_some()
                || !calm.any(|calm| calm.from == from.at && calm.to == by)
            {
                continue;
            }
            let next = observer.shown.partition_point(|shown| shown.point.at <= by);
            let current = next.checked_sub(1).and_then(|at| ranks[at]);
            if current.is_some_and(|rank| rank >= proclaim.rank) {
                continue;
            }
            let state = next.checked_sub(1).map(|at| observer.shown[at].point.pos);
            let excerpt = [observer.opened.pos, proclaim.invoked, from.pos];
            report.add(Kind::E3, by, excerpt.into_iter().chain(state), || {
                format!(
                    "{:?} of lock {}, token {}, was acknowledged at {}, but a stream at daemon {} \
                     did not show it within {}",
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

    /// Whether something beyond the guarantees explains an older state.
    fn is_excused(
        &self,
        observer: &Observer<'_>,
        token: u64,
        newer: Evidence,
        shown: Point,
        lag: Nanos,
    ) -> bool {
        let place = &self.index.places[observer.place];
        let own = self.daemon_of(place.lock, token);
        let is_broken =
            |daemon: usize| self.index.daemons[daemon].broken.is_some_and(|broken| broken <= shown);
        let tampered = self.locks[place.lock]
            .tampered
            .iter()
            .any(|span| span.from <= shown.at && newer.point.at <= span.to.saturating_add(lag));
        tampered
            || is_broken(place.daemon)
            || own.is_some_and(is_broken)
            || self.index.locks[place.lock].is_overruled(token, newer.token, shown.at)
    }

    fn whom(&self, observer: &Observer<'_>, shown: &Shown<'_>) -> String {
        let place = &self.index.places[observer.place];
        format!(
            "at {}, daemon {} showed for lock {}",
            Seconds(shown.point.at),
            self.index.daemons[place.daemon].id,
            self.index.locks[place.lock].id
        )
    }
}

fn what(shown: &Shown<'_>) -> String {
    match (shown.token, shown.value) {
        (Some(token), Some(value)) => format!("token {token} with {value:?}"),
        (Some(token), None) => format!("token {token} without a value"),
        (None, Some(value)) => format!("{value:?}"),
        (None, None) => "no leader".to_owned(),
    }
}

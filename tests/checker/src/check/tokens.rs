//! Tokens: I1, each belongs to one acquire, and accepted tokens never decrease; I2, later
//! grants have higher tokens; I5, a token is durable before it is granted; I7, stored tokens
//! never decrease.

use std::collections::BTreeMap;

use crate::{
    Event, Kind,
    format::Seconds,
    index::{About, Hold, Index, Pos},
    report::Report,
};

/// Number of tokens that a stored record reserves, from its own token on.
const TOKENS_PER_RECORD: u64 = 1024;

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    owners(index, report);
    accepted(index, report);
    never_granted(index, report);
    increasing(index, report);
    durable(index, report);
    stored_by_holder(index, report);
    stored(index, report);
}

/// Checks I1: a token is granted to one acquire only, also within one session.
fn owners(index: &Index<'_>, report: &mut Report) {
    for &(first, second) in &index.duplicates {
        let (first, second) = (&index.holds[first], &index.holds[second]);
        report.distrust(first.lock);
        let excerpt = [first, second]
            .map(|hold| [index.acquires[hold.acquire].invoked.pos, hold.granted.pos])
            .concat();
        report.add(Kind::I1, second.granted.at, excerpt, || {
            format!(
                "token {} of lock {} was granted to client {} at {} and to client {} at {}",
                first.token,
                index.locks[first.lock].id,
                first.client,
                Seconds(first.granted.at),
                second.client,
                Seconds(second.granted.at),
            )
        });
    }
}

/// Checks I1: a fenced resource does not accept a token after a higher one.
fn accepted(index: &Index<'_>, report: &mut Report) {
    let used = |pos: Pos| match (&index.entries[pos].event, index.about[pos]) {
        (
            &Event::Used { client, token, fenced: true, accepted: true, .. },
            About::Used { lock, .. },
        ) => Some((client, lock, token)),
        _ => None,
    };
    let mut highest: Vec<Option<(u64, u32, Pos)>> = vec![None; index.locks.len()];
    let mut unsafe_locks = Vec::new();
    index.replay(
        &mut highest,
        |highest, pos| {
            let Some((client, lock, token)) = used(pos) else { return };
            let Some((higher, by, then)) = highest[lock].filter(|(known, ..)| *known > token)
            else {
                return;
            };
            unsafe_locks.push(lock);
            let (at, before) = (index.entries[pos].at, index.entries[then].at);
            report.add(Kind::I1, at, [then, pos], || {
                format!(
                    "token {token} of client {client} was accepted under lock {} at {}, \
                     after token {higher} of client {by} at {}",
                    index.locks[lock].id,
                    Seconds(at),
                    Seconds(before)
                )
            });
        },
        |highest, pos| {
            let Some((client, lock, token)) = used(pos) else { return };
            if highest[lock].is_none_or(|(known, ..)| known < token) {
                highest[lock] = Some((token, client, pos));
            }
        },
    );
    unsafe_locks.into_iter().for_each(|lock| report.distrust(lock));
}

/// Checks I1: a client uses only tokens that it was granted.
fn never_granted(index: &Index<'_>, report: &mut Report) {
    for (pos, entry) in index.entries.iter().enumerate() {
        let (&Event::Used { client, token, .. }, About::Used { lock, hold: None }) =
            (&entry.event, index.about[pos])
        else {
            continue;
        };
        report.distrust(lock);
        report.add(Kind::I1, entry.at, [pos], || {
            format!(
                "client {client} acted under lock {} at {} with token {token}, which it was never \
                 granted",
                index.locks[lock].id,
                Seconds(entry.at)
            )
        });
    }
}

/// Checks I2: an acquire invoked after a grant was returned gets a higher token. I1 reports
/// equal tokens.
fn increasing(index: &Index<'_>, report: &mut Report) {
    struct Highest {
        /// By lock: the hold with the highest token so far.
        now: Vec<Option<usize>>,
        /// By acquire: the hold with the highest token when it was invoked.
        then: Vec<Option<usize>>,
    }
    let mut highest =
        Highest { now: vec![None; index.locks.len()], then: vec![None; index.acquires.len()] };
    index.replay(
        &mut highest,
        |highest, pos| {
            if let (Event::Acquire { .. }, About::Acquire(acquire)) =
                (&index.entries[pos].event, index.about[pos])
            {
                highest.then[acquire] = highest.now[index.acquires[acquire].lock];
            }
        },
        |highest, pos| {
            let Some(hold) = granted(index, pos).and_then(|acquire| index.acquires[acquire].hold())
            else {
                return;
            };
            let known = &mut highest.now[index.holds[hold].lock];
            if known.is_none_or(|known| index.holds[known].token < index.holds[hold].token) {
                *known = Some(hold);
            }
        },
    );
    for (acquire, before) in highest.then.into_iter().enumerate() {
        let acquire = &index.acquires[acquire];
        let (Some(before), Some((granted, hold))) = (before, acquire.granted()) else { continue };
        let (before, hold) = (&index.holds[before], &index.holds[hold]);
        let broken = |hold: &Hold| hold.broken.is_some_and(|broken| broken < granted);
        if hold.token >= before.token
            || index.locks[hold.lock].is_lease_broken(hold.token, before.token, granted.at)
            || broken(hold)
            || broken(before)
        {
            continue;
        }
        report.distrust(hold.lock);
        let invoked = index.acquires[before.acquire].invoked.pos;
        let excerpt = [invoked, before.granted.pos, acquire.invoked.pos, granted.pos];
        report.add(Kind::I2, granted.at, excerpt, || {
            format!(
                "client {} requested lock {} at {} and was granted token {}, although token {} \
                 had been granted to client {} before, at {}",
                hold.client,
                index.locks[hold.lock].id,
                Seconds(acquire.invoked.at),
                hold.token,
                before.token,
                before.client,
                Seconds(before.granted.at),
            )
        });
    }
}

fn granted(index: &Index<'_>, pos: Pos) -> Option<usize> {
    match (&index.entries[pos].event, index.about[pos]) {
        (Event::Granted { .. }, About::Acquire(acquire)) => Some(acquire),
        _ => None,
    }
}

/// Checks I5: a token was stored or reserved, and held by a daemon, before it was granted.
fn durable(index: &Index<'_>, report: &mut Report) {
    let reserves = |event: &Event| matches!(event, Event::Reserved { .. });
    let has_reserved = index.entries.iter().any(|entry| reserves(&entry.event));
    let no_ranges = || vec![Ranges::default(); index.locks.len()];
    index.replay(
        &mut (no_ranges(), no_ranges(), 0),
        |(stored, held, reserved), pos| {
            if let Event::Reserved { last, .. } = index.entries[pos].event {
                *reserved = last.max(*reserved);
            }
            let About::Place(place) = index.about[pos] else { return };
            let lock = index.places[place].lock;
            match index.entries[pos].event {
                Event::Stored { token, .. } if token > 0 => {
                    stored[lock].add(token, token.saturating_add(TOKENS_PER_RECORD - 1));
                }
                Event::Holds { first, last, .. } => held[lock].add(first, last),
                _ => {}
            }
        },
        |(stored, held, reserved), pos| {
            let Some(acquire) = granted(index, pos) else { return };
            let Some(hold) = index.acquires[acquire].hold() else { return };
            let hold = &index.holds[hold];
            let why = if index.has_stored && !stored[hold.lock].has(hold.token) {
                "no record stored with the blob before covers it"
            } else if has_reserved && hold.token > *reserved {
                "no data directory had reserved it before"
            } else if index.has_holds && !held[hold.lock].has(hold.token) {
                "no daemon had relied on a lease with this token before"
            } else {
                return;
            };
            let at = index.entries[pos].at;
            report.add(Kind::I5, at, [index.acquires[acquire].invoked.pos, pos], || {
                format!(
                    "token {} of lock {} was granted to client {} by daemon {} at {}, but {why}",
                    hold.token,
                    index.locks[hold.lock].id,
                    hold.client,
                    index.daemon_of(acquire).id,
                    Seconds(at)
                )
            });
        },
    );
}

/// Checks I5: a daemon issues only tokens that it stored itself under its current lease,
/// not those of an earlier process or of an earlier lease.
fn stored_by_holder(index: &Index<'_>, report: &mut Report) {
    /// Records and tokens of one daemon for one lock.
    #[derive(Clone, Default)]
    struct Own {
        stored: Vec<(Pos, u64)>,
        held: Ranges,
    }
    if !(index.has_leases && index.has_stored) {
        return;
    }
    let mut own = vec![Own::default(); index.places.len()];
    index.replay(
        &mut own,
        |own, pos| match (&index.entries[pos].event, index.about[pos]) {
            (&Event::Stored { token, .. }, About::Place(place)) if token > 0 => {
                own[place].stored.push((pos, token));
            }
            _ => {}
        },
        |own, pos| {
            let (&Event::Holds { first, last, .. }, About::Place(place)) =
                (&index.entries[pos].event, index.about[pos])
            else {
                return;
            };
            let own = &mut own[place];
            if own.held.has_all(first, last) {
                return;
            }
            own.held.add(first, last);
            let place = &index.places[place];
            let leases = &place.leases[..place.leases.partition_point(|lease| lease.began <= pos)];
            // I6 reports a missing lease.
            let Some(lease) = leases.last() else { return };
            let mut since = own.stored.iter().rev().take_while(|(at, _)| *at > lease.began);
            if since.any(|&(_, token)| {
                token <= first && last <= token.saturating_add(TOKENS_PER_RECORD - 1)
            }) {
                return;
            }
            report.add(Kind::I5, index.entries[pos].at, [lease.began, pos], || {
                format!(
                    "daemon {} relied on tokens {first} to {last} of lock {} at {}, but had not \
                     stored them since its lease began at {}",
                    index.daemons[place.daemon].id,
                    index.locks[place.lock].id,
                    Seconds(index.entries[pos].at),
                    Seconds(index.entries[lease.began].at),
                )
            });
        },
    );
}

/// Ranges of tokens (first → last), none contained in another.
#[derive(Clone, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn add(&mut self, first: u64, last: u64) {
        if self.0.range(..=first).next_back().is_some_and(|(_, &before)| before >= last) {
            return;
        }
        while let Some((&within, _)) = self.0.range(first..).next().filter(|(_, to)| **to <= last) {
            self.0.remove(&within);
        }
        self.0.insert(first, last);
    }

    fn has(&self, token: u64) -> bool {
        self.has_all(token, token)
    }

    fn has_all(&self, first: u64, last: u64) -> bool {
        self.0.range(..=first).next_back().is_some_and(|(_, &to)| last <= to)
    }
}

/// Checks I7: each hold stores a higher token than all earlier holds.
fn stored(index: &Index<'_>, report: &mut Report) {
    #[derive(Clone, Default)]
    struct Blob {
        /// Highest token, with its place and its entry.
        highest: Option<(u64, usize, Pos)>,
        /// True if the blob has a record with a hold's token now.
        written: bool,
    }
    let mut blobs = vec![Blob::default(); index.locks.len()];
    for (pos, entry) in index.entries.iter().enumerate() {
        match (&entry.event, index.about[pos]) {
            // An operator may write any token; the daemons must still store a higher one.
            (Event::Deleted { .. } | Event::Tampered { .. }, About::Lock(lock)) => {
                blobs[lock].written = false;
            }
            (&Event::Stored { token, daemon, .. }, About::Place(place)) => {
                let lock = index.places[place].lock;
                let blob = &mut blobs[lock];
                let regressed = blob.highest.filter(|&(known, by, _)| match token {
                    0 => blob.written,
                    _ => token < known || (token == known && place != by),
                });
                if let Some((known, by, then)) = regressed {
                    report.add(Kind::I7, entry.at, [then, pos], || {
                        format!(
                            "daemon {daemon} stored token {token} with lock {} at {}, after \
                             daemon {} had stored {known} at {}",
                            index.locks[lock].id,
                            Seconds(entry.at),
                            index.daemons[index.places[by].daemon].id,
                            Seconds(index.entries[then].at)
                        )
                    });
                }
                if token > 0 {
                    blob.written = true;
                    if blob.highest.is_none_or(|(known, ..)| known <= token) {
                        blob.highest = Some((token, place, pos));
                    }
                }
            }
            _ => {}
        }
    }
}

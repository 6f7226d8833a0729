//! I6: a client's deadline is not later than its daemon's, a daemon's deadline is not later
//! than the lease expiry in the storage, and a lease does not end before its daemon and the
//! clients that rely on it have stopped.
//!
//! Clients and daemons receive changes late. Their deadlines are therefore compared with the
//! latest one that applied, but not beyond the end of the lease. An end before the deadline
//! is excused only if an operator broke the lease.

use crate::{
    Event, Kind, Nanos,
    format::Seconds,
    index::{About, Hold, Index, Point, Pos},
    report::Report,
};

/// Continuous hold of a daemon: its tokens and its latest deadline.
#[derive(Clone, Copy)]
struct Tenure {
    first: u64,
    last: u64,
    until: Nanos,
    pos: Pos,
}

impl Tenure {
    fn has(&self, token: u64) -> bool {
        (self.first..=self.last).contains(&token)
    }
}

/// Lease of the storage for a daemon, with its latest expiry.
#[derive(Clone, Copy)]
struct Lease {
    until: Nanos,
    pos: Pos,
    /// Index of the daemon's first tenure under this lease.
    tenures: usize,
    /// Regular expiry of a lease that an operator broke.
    overruled: Option<Nanos>,
}

/// State of a lock at a daemon, and of its lease in the storage.
#[derive(Clone, Default)]
struct PlaceState {
    tenures: Vec<Tenure>,
    /// Current deadline of the daemon, if it has a hold.
    held: Option<(Nanos, Pos)>,
    /// Current lease, or the last one.
    lease: Option<Lease>,
    leased: bool,
}

/// Premature end of a lease, in the past or in the future.
struct Cut {
    place: usize,
    lease: Lease,
    to: Nanos,
    /// Deadline of the daemon at that time.
    held: Option<(Nanos, Pos)>,
}

struct State<'i> {
    index: &'i Index<'i>,
    places: Vec<PlaceState>,
    /// By lock: holds that may still be valid.
    live: Vec<Vec<usize>>,
    cuts: Vec<(Pos, Cut)>,
}

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    let mut state = State {
        index,
        places: vec![PlaceState::default(); index.places.len()],
        live: vec![Vec::new(); index.locks.len()],
        cuts: Vec::new(),
    };
    index.replay(&mut state, State::apply, |state, pos| {
        match (&index.entries[pos].event, index.about[pos]) {
            (&Event::Valid { until, .. }, About::Hold(hold)) => {
                client_in_daemon(index, &state.places, pos, hold, until, report);
            }
            (&Event::Holds { until, .. }, About::Place(place)) => {
                daemon_in_storage(index, &state.places[place], pos, place, until, report);
            }
            (Event::Leased { .. } | Event::Unleased { .. }, _) => {
                while let Some(nth) = state.cuts.iter().position(|(by, _)| *by == pos) {
                    let (_, cut) = state.cuts.swap_remove(nth);
                    state.premature_end(pos, &cut, report);
                }
            }
            _ => {}
        }
    });
}

impl State<'_> {
    fn apply(&mut self, pos: Pos) {
        let entry = &self.index.entries[pos];
        match (&entry.event, self.index.about[pos]) {
            (Event::Granted { .. }, About::Acquire(acquire)) => {
                let acquire = &self.index.acquires[acquire];
                self.live[acquire.lock].extend(acquire.hold());
            }
            (&Event::Holds { first, last, until, .. }, About::Place(place)) => {
                let place = &mut self.places[place];
                match place.tenures.last_mut().filter(|_| place.held.is_some()) {
                    Some(tenure) => {
                        tenure.first = tenure.first.min(first);
                        tenure.last = tenure.last.max(last);
                        if tenure.until < until {
                            (tenure.until, tenure.pos) = (until, pos);
                        }
                    }
                    None => place.tenures.push(Tenure { first, last, until, pos }),
                }
                place.held = Some((until, pos));
            }
            (Event::HoldEnded { .. }, About::Place(place)) => self.places[place].held = None,
            (&Event::Leased { until, .. }, About::Place(place)) => {
                self.unleased(self.index.places[place].lock, Some(place), pos);
                self.leased(place, until, pos);
            }
            (Event::Unleased { .. }, About::Lock(lock)) => self.unleased(lock, None, pos),
            (&Event::Overruled { until, .. }, About::Lock(lock)) => {
                for &place in &self.index.locks[lock].places {
                    let place = &mut self.places[place];
                    if let Some(lease) = place.lease.as_mut().filter(|_| place.leased) {
                        lease.overruled = Some(until);
                    }
                }
            }
            _ => {}
        }
    }

    /// Ends all leases of a lock except the one of place `but`.
    fn unleased(&mut self, lock: usize, but: Option<usize>, pos: Pos) {
        for &place in &self.index.locks[lock].places {
            if self.places[place].leased && but != Some(place) {
                self.cut(place, self.index.entries[pos].at, pos);
                self.places[place].leased = false;
            }
        }
    }

    fn leased(&mut self, place: usize, until: Nanos, pos: Pos) {
        let at = self.index.entries[pos].at;
        let state = &mut self.places[place];
        match state.lease.as_mut().filter(|lease| state.leased && lease.until >= at) {
            Some(lease) if lease.until > until => self.cut(place, until, pos),
            Some(lease) if lease.until < until => (lease.until, lease.pos) = (until, pos),
            Some(_) => {}
            None => {
                let tenures = state.tenures.len() - usize::from(state.held.is_some());
                state.lease = Some(Lease { until, pos, tenures, overruled: None });
            }
        }
        self.places[place].leased = true;
    }

    fn cut(&mut self, place: usize, to: Nanos, pos: Pos) {
        let at = self.index.entries[pos].at;
        let state = &mut self.places[place];
        let Some(lease) = state.lease.as_mut() else { return };
        if lease.until <= to || lease.overruled.is_some_and(|until| at <= until) {
            return;
        }
        self.cuts.push((pos, Cut { place, lease: *lease, to, held: state.held }));
        (lease.until, lease.pos) = (to, pos);
        for tenure in &mut state.tenures[lease.tenures..] {
            if tenure.until > to {
                (tenure.until, tenure.pos) = (to, pos);
            }
        }
    }

    /// Reports the daemon and the clients that rely on a lease beyond its end.
    fn premature_end(&mut self, pos: Pos, cut: &Cut, report: &mut Report) {
        let index = self.index;
        let (point, place) = (Point { at: index.entries[pos].at, pos }, &index.places[cut.place]);
        let late = cut.to.saturating_add(index.bounds.skew);
        let ended = || {
            format!(
                "the storage's lease of lock {} for daemon {} ended at {}, but",
                index.locks[place.lock].id,
                index.daemons[place.daemon].id,
                Seconds(cut.to),
            )
        };
        let daemon = &index.daemons[place.daemon];
        let gone = [daemon.died, daemon.broken].into_iter().flatten().any(|gone| gone < point);
        if let Some((until, held)) = cut.held.filter(|(until, _)| *until > late && !gone) {
            report.add(Kind::I6, point.at, [cut.lease.pos, held, pos], || {
                format!("{} the daemon relied on it until {}", ended(), Seconds(until))
            });
        }
        self.live[place.lock].retain(|&hold| index.holds[hold].valid_to > point);
        for hold in self.live[place.lock].iter().map(|&hold| &index.holds[hold]) {
            let tenures = &self.places[cut.place].tenures[cut.lease.tenures..];
            let until = valid_until(hold, point);
            if until <= late
                || is_broken(hold, pos)
                || !tenures.iter().any(|tenure| tenure.has(hold.token))
            {
                continue;
            }
            let valid = hold.valid_at(point).map(|valid| valid.point.pos);
            let excerpt = [cut.lease.pos, valid.unwrap_or(hold.granted.pos), pos];
            report.add(Kind::I6, point.at, excerpt, || {
                let (client, token) = (hold.client, hold.token);
                format!(
                    "{} client {client} relied on token {token} until {}",
                    ended(),
                    Seconds(until)
                )
            });
        }
    }
}

/// Returns the deadline that a client relies on at an instant.
fn valid_until(hold: &Hold, point: Point) -> Nanos {
    let until = hold.valid_at(point).map_or(Nanos::MAX, |valid| valid.until);
    match hold.end {
        Some(end) if end.point <= point => 0,
        _ => until,
    }
}

fn is_broken(hold: &Hold, pos: Pos) -> bool {
    hold.broken.is_some_and(|broken| broken.pos < pos)
}

fn client_in_daemon(
    index: &Index<'_>,
    places: &[PlaceState],
    pos: Pos,
    hold: usize,
    until: Nanos,
    report: &mut Report,
) {
    let hold = &index.holds[hold];
    // Any daemon with this token counts, because an acquire may move to another daemon. If
    // no daemon had the token, I5 reports that.
    let places = index.locks[hold.lock].places.iter().map(|place| (*place, &places[*place]));
    let own = places.filter_map(|(place, state)| {
        // Tokens of tenures increase; I5 and I7 report it otherwise.
        let after = state.tenures.partition_point(|tenure| tenure.first <= hold.token);
        let tenure = after.checked_sub(1).map(|at| &state.tenures[at])?;
        (hold.token <= tenure.last).then_some((place, tenure))
    });
    let Some((place, tenure)) = own.max_by_key(|(_, tenure)| tenure.until) else { return };
    let late = until > tenure.until.saturating_add(index.bounds.skew);
    if !late || is_broken(hold, pos) || hold.is_freed(pos) {
        return;
    }
    let at = index.entries[pos].at;
    report.add(Kind::I6, at, [tenure.pos, pos], || {
        let whose = match index.entries[tenure.pos].event {
            Event::Holds { .. } => "its",
            _ => "the storage's lease for",
        };
        format!(
            "client {} relied on lock {}, token {}, until {}, but {whose} daemon {} only until {}",
            hold.client,
            index.locks[hold.lock].id,
            hold.token,
            Seconds(until),
            index.daemons[index.places[place].daemon].id,
            Seconds(tenure.until)
        )
    });
}

fn daemon_in_storage(
    index: &Index<'_>,
    state: &PlaceState,
    pos: Pos,
    place: usize,
    until: Nanos,
    report: &mut Report,
) {
    let place = &index.places[place];
    let daemon = &index.daemons[place.daemon];
    let lock = &index.locks[place.lock];
    if !index.has_leases || daemon.broken.is_some_and(|broken| broken.pos < pos) {
        return;
    }
    let lease = state.lease;
    let late = |lease: Lease| until > lease.until.saturating_add(index.bounds.skew);
    if lease.is_some_and(|lease| !late(lease)) {
        return;
    }
    let excerpt = lease.map(|lease| lease.pos).into_iter().chain([pos]);
    report.add(Kind::I6, index.entries[pos].at, excerpt, || {
        let storage = lease.map_or_else(
            || "the storage had no lease for it".to_owned(),
            |lease| format!("the storage only until {}", Seconds(lease.until)),
        );
        format!(
            "daemon {} relied on its lease of lock {} until {}, but {storage}",
            daemon.id,
            lock.id,
            Seconds(until)
        )
    });
}

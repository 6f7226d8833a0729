//! I6: a client counts on its grant no longer than its daemon does, a daemon no
//! longer than the storage; and the storage's lease does not end before those who
//! count on it have stopped.
//!
//! Clients and daemons hear late, so what they believe is compared with the
//! longest that there was; but not beyond the moment at which the lease was given
//! back. Only if an operator took it away is that moment nobody's fault.

use crate::{
    Event, Kind, Nanos,
    format::Seconds,
    index::{About, Hold, Index, Point, Pos},
    report::Report,
};

/// What a daemon had of a lock without a break: its tokens, and the longest that
/// it counted on it.
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

/// The storage's lease for a daemon: the longest until which it lasted.
#[derive(Clone, Copy)]
struct Lease {
    until: Nanos,
    pos: Pos,
    /// From which tenure of the daemon on they were under it.
    tenures: usize,
    /// An operator took it away: it would have lasted until then.
    overruled: Option<Nanos>,
}

/// What a daemon has of a lock, and what the storage has for it.
#[derive(Clone, Default)]
struct Believed {
    tenures: Vec<Tenure>,
    /// What it counts on now.
    held: Option<(Nanos, Pos)>,
    /// The present one, or the last.
    lease: Option<Lease>,
    leased: bool,
}

/// A lease ended, or will end, earlier than it was to.
struct Cut {
    place: usize,
    lease: Lease,
    to: Nanos,
    /// What the daemon counted on.
    held: Option<(Nanos, Pos)>,
}

struct State<'i> {
    index: &'i Index<'i>,
    places: Vec<Believed>,
    /// By lock: the holds that may still be valid.
    live: Vec<Vec<usize>>,
    cuts: Vec<(Pos, Cut)>,
}

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    let mut state = State {
        index,
        places: vec![Believed::default(); index.places.len()],
        live: vec![Vec::new(); index.locks.len()],
        cuts: Vec::new(),
    };
    index.replay(&mut state, State::happens, |state, pos| {
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
                    state.too_early(pos, &cut, report);
                }
            }
            _ => {}
        }
    });
}

impl State<'_> {
    fn happens(&mut self, pos: Pos) {
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
            (Event::LetGo { .. }, About::Place(place)) => self.places[place].held = None,
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

    /// All leases of a lock are over, but for the one of this place.
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
        let believed = &mut self.places[place];
        match believed.lease.as_mut().filter(|lease| believed.leased && lease.until >= at) {
            Some(lease) if lease.until > until => self.cut(place, until, pos),
            Some(lease) if lease.until < until => (lease.until, lease.pos) = (until, pos),
            Some(_) => {}
            None => {
                let tenures = believed.tenures.len() - usize::from(believed.held.is_some());
                believed.lease = Some(Lease { until, pos, tenures, overruled: None });
            }
        }
        self.places[place].leased = true;
    }

    fn cut(&mut self, place: usize, to: Nanos, pos: Pos) {
        let at = self.index.entries[pos].at;
        let believed = &mut self.places[place];
        let Some(lease) = believed.lease.as_mut() else { return };
        if lease.until <= to || lease.overruled.is_some_and(|until| at <= until) {
            return;
        }
        self.cuts.push((pos, Cut { place, lease: *lease, to, held: believed.held }));
        (lease.until, lease.pos) = (to, pos);
        for tenure in &mut believed.tenures[lease.tenures..] {
            if tenure.until > to {
                (tenure.until, tenure.pos) = (to, pos);
            }
        }
    }

    /// Nobody counts on a lease beyond its end.
    fn too_early(&mut self, pos: Pos, cut: &Cut, report: &mut Report) {
        let index = self.index;
        let (point, place) = (Point { at: index.entries[pos].at, pos }, &index.places[cut.place]);
        let late = cut.to.saturating_add(index.bounds.skew);
        let over = || {
            format!(
                "the storage's lease of lock {} for daemon {} was over at {}, but",
                index.locks[place.lock].id,
                index.daemons[place.daemon].id,
                Seconds(cut.to),
            )
        };
        let daemon = &index.daemons[place.daemon];
        let gone = [daemon.died, daemon.broken].into_iter().flatten().any(|gone| gone < point);
        if let Some((until, held)) = cut.held.filter(|(until, _)| *until > late && !gone) {
            report.add(Kind::I6, point.at, [cut.lease.pos, held, pos], || {
                format!("{} that one counted on it until {}", over(), Seconds(until))
            });
        }
        self.live[place.lock].retain(|&hold| index.holds[hold].over > point);
        for hold in self.live[place.lock].iter().map(|&hold| &index.holds[hold]) {
            let tenures = &self.places[cut.place].tenures[cut.lease.tenures..];
            let until = counts_until(hold, point);
            if until <= late
                || is_broken(hold, pos)
                || !tenures.iter().any(|tenure| tenure.has(hold.token))
            {
                continue;
            }
            let valid = hold.valid_at(point).map(|valid| valid.point.pos);
            let shown = [cut.lease.pos, valid.unwrap_or(hold.granted.pos), pos];
            report.add(Kind::I6, point.at, shown, || {
                let (client, token) = (hold.client, hold.token);
                format!(
                    "{} client {client} counted on token {token} until {}",
                    over(),
                    Seconds(until)
                )
            });
        }
    }
}

/// What a client counts on at a moment.
fn counts_until(hold: &Hold, point: Point) -> Nanos {
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
    places: &[Believed],
    pos: Pos,
    hold: usize,
    until: Nanos,
    report: &mut Report,
) {
    let hold = &index.holds[hold];
    // Whichever daemon had this token: an acquire may have gone through another
    // than the one that it began with. If none had it, that is for I5.
    let places = index.locks[hold.lock].places.iter().map(|place| (*place, &places[*place]));
    let own = places.filter_map(|(place, believed)| {
        // Their tokens rise, unless I5 and I7 have something to say.
        let after = believed.tenures.partition_point(|tenure| tenure.first <= hold.token);
        let tenure = after.checked_sub(1).map(|at| &believed.tenures[at])?;
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
            "client {} counted on lock {}, token {}, until {}, but {whose} daemon {} only until {}",
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
    believed: &Believed,
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
    let lease = believed.lease;
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
            "daemon {} counted on its lease of lock {} until {}, but {storage}",
            daemon.id,
            lock.id,
            Seconds(until)
        )
    });
}

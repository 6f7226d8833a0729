//! Builder of an [`Index`]. Also reports contradictions in the history.

mod client;
mod election;

use client::NOT_GRANTED;
use hashbrown::{HashMap, HashSet};

use super::{
    About, Daemon, End, EndCause, Gone, Index, Lease, Lock, ObservedState, Place, Point, Pos, Span,
    Valid,
};
use crate::{Entry, Event, History, Kind, Nanos, report::Report};

impl<'h> Index<'h> {
    pub(crate) fn new(history: &'h History, report: &mut Report) -> Self {
        let mut builder = Builder::new(history, report);
        let mut before = 0;
        for (pos, entry) in history.entries.iter().enumerate() {
            if entry.at < before {
                builder.index.disordered = true;
                builder.malformed(pos, [pos - 1], "this entry is earlier than its predecessor");
            }
            before = entry.at;
            let about = builder.take(Point { at: entry.at, pos }, entry);
            builder.index.about.push(about);
        }
        builder.finish(before)
    }
}

struct Builder<'h, 'r> {
    index: Index<'h>,
    report: &'r mut Report,
    ops: HashMap<u64, Op>,
    clients: HashMap<u32, Client>,
    locks: HashMap<u32, usize>,
    daemons: HashMap<u32, usize>,
    places: HashMap<(usize, usize), usize>,
    tokens: HashMap<(usize, u64), usize>,
    /// By lock: the place of the current lease, and its expiry.
    leased: HashMap<usize, (usize, Nanos)>,
    disturbed: HashMap<&'h str, usize>,
    open: usize,
    calm_from: Nanos,
    calmed: Option<Pos>,
}

enum Op {
    Acquire(usize),
    Release { hold: usize, done: bool },
    Proclaim(usize),
    Observer(usize),
}

#[derive(Default)]
struct Client {
    died: Option<Point>,
    broken: Option<Point>,
    acquires: Vec<usize>,
    holds: Vec<usize>,
    /// Grants that were freed before the client received them, by lock and token.
    freed: HashSet<(usize, u64)>,
}

impl<'h, 'r> Builder<'h, 'r> {
    fn new(history: &'h History, report: &'r mut Report) -> Self {
        let has =
            |which: fn(&Event) -> bool| history.entries.iter().any(|entry| which(&entry.event));
        let index = Index {
            bounds: &history.bounds,
            entries: &history.entries,
            about: Vec::with_capacity(history.entries.len()),
            acquires: Vec::new(),
            holds: Vec::new(),
            locks: Vec::new(),
            daemons: Vec::new(),
            places: Vec::new(),
            duplicates: Vec::new(),
            proclaims: Vec::new(),
            observers: Vec::new(),
            has_elections: false,
            calm: Vec::new(),
            calmed: Vec::new(),
            disturbances: 0,
            clients: 0,
            has_holds: has(|event| matches!(event, Event::Holds { .. })),
            has_leases: has(|event| matches!(event, Event::Leased { .. })),
            has_stored: has(|event| matches!(event, Event::Stored { .. })),
            end: 0,
            disordered: false,
        };
        Self {
            index,
            report,
            ops: HashMap::new(),
            clients: HashMap::new(),
            locks: HashMap::new(),
            daemons: HashMap::new(),
            places: HashMap::new(),
            tokens: HashMap::new(),
            leased: HashMap::new(),
            disturbed: HashMap::new(),
            open: 0,
            calm_from: 0,
            calmed: None,
        }
    }

    fn malformed(&mut self, pos: Pos, with: impl IntoIterator<Item = Pos>, why: &str) -> About {
        let entry = &self.index.entries[pos];
        let excerpt = with.into_iter().chain([pos]);
        self.report.add(Kind::Malformed, entry.at, excerpt, || format!("{why}: {}", entry.event));
        About::Nothing
    }

    fn take(&mut self, point: Point, entry: &'h Entry) -> About {
        match &entry.event {
            &Event::Acquire { op, client, daemon, lock } => {
                self.acquire(point, op, client, daemon, lock)
            }
            Event::Queued { op } => self.queued(point, *op),
            Event::Granted { op, token } => self.granted(point, *op, *token),
            &Event::Refused { op, faulty, canceled, .. } => {
                self.refused(point, op, faulty, canceled)
            }
            &Event::Valid { client, lock, token, until } => {
                let Some(hold) = self.held(point, client, lock, token) else {
                    return self.malformed(point.pos, [], NOT_GRANTED);
                };
                if self.index.holds[hold].end.is_none() {
                    self.index.holds[hold].valid.push(Valid { point, until });
                }
                About::Hold(hold)
            }
            &Event::Release { op, client, lock, token } => {
                let Some(hold) = self.held(point, client, lock, token) else {
                    return self.malformed(point.pos, [], NOT_GRANTED);
                };
                if self.ops.insert(op, Op::Release { hold, done: false }).is_some() {
                    self.malformed(point.pos, [], "duplicate operation number");
                }
                self.end(hold, End { point, cause: EndCause::Released })
            }
            Event::Released { op } => self.released(point, *op),
            &Event::Lost { client, lock, token } => {
                let Some(hold) = self.held(point, client, lock, token) else {
                    return self.malformed(point.pos, [], NOT_GRANTED);
                };
                self.end(hold, End { point, cause: EndCause::Lost })
            }
            &Event::LossNotified { client, lock, token }
            | &Event::StillGranted { client, lock, token } => {
                match self.held(point, client, lock, token) {
                    Some(hold) => About::Hold(hold),
                    None => self.malformed(point.pos, [], NOT_GRANTED),
                }
            }
            &Event::Used { client, lock, token, .. } => {
                let lock = self.lock(lock);
                About::Used { lock, hold: self.hold(client, lock, token) }
            }
            Event::Detached { client } => self.detached(point, *client),
            &Event::Freed { client, lock, token } => self.freed(point, client, lock, token),
            Event::ClientDied { client } => self.client_died(point, *client),
            Event::Campaign { op, value } => self.campaign(point, *op, value),
            Event::Proclaim { op, client, lock, token, value } => {
                self.proclaim(point, *op, (*client, *lock, *token), value)
            }
            Event::Proclaimed { op } => self.proclaimed(point, *op, true),
            Event::NotProclaimed { op } => self.proclaimed(point, *op, false),
            &Event::ReadLeader { op, daemon, lock } => {
                self.observer(point, op, daemon, lock, false)
            }
            &Event::Observe { op, daemon, lock } => self.observer(point, op, daemon, lock, true),
            Event::Observed { op, token, value, ending } => {
                let (token, ending) = (*token, *ending);
                self.observed(*op, ObservedState { point, token, value: value.as_deref(), ending })
            }
            Event::ObserveEnded { op } => self.observe_ended(point, *op),
            &Event::Holds { daemon, lock, first, last, .. } => {
                let place = self.place(lock, daemon);
                let dead = self.index.daemons[self.index.places[place].daemon].died;
                if let Some(died) = dead.filter(|died| self.after(*died, point)) {
                    self.malformed(point.pos, [died.pos], "this daemon is dead");
                }
                if first > last {
                    self.malformed(point.pos, [], "the last token is lower than the first");
                }
                self.raise_highest(place, last);
                About::Place(place)
            }
            &Event::HoldEnded { daemon, lock } => About::Place(self.place(lock, daemon)),
            Event::DaemonDied { daemon } => self.daemon_died(point, *daemon),
            &Event::Leased { daemon, lock, until } => self.leased(point, lock, daemon, until),
            Event::Unleased { lock } => {
                let lock = self.lock(*lock);
                if let Some((place, until)) = self.leased.remove(&lock) {
                    self.end_lease(place, point.at.min(until), Some(point.pos));
                }
                About::Lock(lock)
            }
            &Event::Stored { daemon, lock, token } => {
                let place = self.place(lock, daemon);
                self.raise_highest(place, token.saturating_add(1023));
                About::Place(place)
            }
            &Event::Overruled { lock, until } => {
                let lock = self.lock(lock);
                // A lease that did not exist can't have been broken.
                let lease = self.leased.get(&lock).map_or(0, |&(_, until)| until);
                let until = if self.index.has_leases { until.min(lease) } else { until };
                if until > point.at {
                    let known = &mut self.index.locks[lock];
                    known.overruled.push((known.highest, until));
                }
                About::Lock(lock)
            }
            Event::Reserved { .. } => About::Nothing,
            &Event::Forgotten { upto, until } => {
                for lock in &mut self.index.locks {
                    lock.forgotten.push((upto, until));
                }
                About::Nothing
            }
            Event::Deleted { lock } | Event::Tampered { lock } => About::Lock(self.lock(*lock)),
            Event::Disturbed { what } => {
                *self.disturbed.entry(what).or_default() += 1;
                self.index.disturbances += 1;
                if self.open == 0 {
                    self.end_calm(point.at);
                }
                self.open += 1;
                About::Nothing
            }
            Event::Undisturbed { what } => {
                match self.disturbed.get_mut(what.as_str()) {
                    Some(open) if *open > 0 => *open -= 1,
                    _ => return self.malformed(point.pos, [], "no fault of this name is active"),
                }
                self.open -= 1;
                if self.open == 0 {
                    (self.calm_from, self.calmed) = (point.at, Some(point.pos));
                }
                About::Nothing
            }
            Event::ClockBroken { client } => {
                let client = self.clients.entry(*client).or_default();
                client.broken.get_or_insert(point);
                for &hold in &client.holds {
                    self.index.holds[hold].broken.get_or_insert(point);
                }
                for &acquire in &client.acquires {
                    let daemon = self.index.places[self.index.acquires[acquire].place].daemon;
                    self.index.daemons[daemon].broken.get_or_insert(point);
                }
                About::Nothing
            }
        }
    }

    fn raise_highest(&mut self, place: usize, token: u64) {
        let lock = &mut self.index.locks[self.index.places[place].lock];
        lock.highest = lock.highest.max(token);
    }

    fn daemon_died(&mut self, point: Point, daemon: u32) -> About {
        let daemon = self.daemon(daemon);
        let daemon = &mut self.index.daemons[daemon];
        if let Some(died) = daemon.died {
            return self.malformed(point.pos, [died.pos], "this daemon is dead already");
        }
        daemon.died = Some(point);
        for &acquire in &daemon.acquires {
            let acquire = &mut self.index.acquires[acquire];
            if acquire.answer.is_none() {
                acquire.gone.get_or_insert(Gone { point, client: false });
            }
        }
        About::Nothing
    }

    fn leased(&mut self, point: Point, lock: u32, daemon: u32, until: Nanos) -> About {
        let place = self.place(lock, daemon);
        let lock = self.index.places[place].lock;
        match self.leased.insert(lock, (place, until)) {
            Some((same, old)) if same == place && old >= point.at => {
                if let Some(lease) = self.index.places[place].leases.last_mut() {
                    lease.leased = point.pos;
                }
            }
            other => {
                if let Some((place, until)) = other {
                    self.end_lease(place, point.at.min(until), None);
                }
                let span = Span { from: point.at, to: Nanos::MAX };
                let (began, leased) = (point.pos, point.pos);
                let lease = Lease { span, began, leased, unleased: None };
                self.index.places[place].leases.push(lease);
            }
        }
        About::Place(place)
    }

    fn end_lease(&mut self, place: usize, to: Nanos, unleased: Option<Pos>) {
        if let Some(lease) = self.index.places[place].leases.last_mut() {
            lease.span.to = to;
            lease.unleased = unleased;
        }
    }

    fn end_calm(&mut self, to: Nanos) {
        self.index.calm.push(Span { from: self.calm_from, to });
        self.index.calmed.push(self.calmed);
    }

    fn after(&self, died: Point, point: Point) -> bool {
        died.certainly_before(point, self.index.bounds.skew)
    }

    fn lock(&mut self, id: u32) -> usize {
        let locks = &mut self.index.locks;
        *self.locks.entry(id).or_insert_with(|| {
            locks.push(Lock {
                id,
                acquires: Vec::new(),
                holds: Vec::new(),
                places: Vec::new(),
                highest: 0,
                overruled: Vec::new(),
                forgotten: Vec::new(),
            });
            locks.len() - 1
        })
    }

    fn daemon(&mut self, id: u32) -> usize {
        let daemons = &mut self.index.daemons;
        *self.daemons.entry(id).or_insert_with(|| {
            daemons.push(Daemon { id, died: None, broken: None, acquires: Vec::new() });
            daemons.len() - 1
        })
    }

    fn place(&mut self, lock: u32, daemon: u32) -> usize {
        let (lock, daemon) = (self.lock(lock), self.daemon(daemon));
        let (places, locks) = (&mut self.index.places, &mut self.index.locks);
        *self.places.entry((lock, daemon)).or_insert_with(|| {
            locks[lock].places.push(places.len());
            places.push(Place { lock, daemon, acquires: Vec::new(), leases: Vec::new() });
            places.len() - 1
        })
    }

    /// Assigns uses to grants that were recorded later, at most by the skew.
    fn grants_of_uses(&mut self) {
        let entries = self.index.entries;
        for (pos, Entry { at, event }) in entries.iter().enumerate() {
            let About::Used { lock, hold: None } = self.index.about[pos] else { continue };
            let &Event::Used { client, token, .. } = event else { continue };
            let late = at.saturating_add(self.index.bounds.skew);
            let hold = self.hold(client, lock, token);
            let hold = hold.filter(|&hold| self.index.holds[hold].granted.at <= late);
            self.index.about[pos] = About::Used { lock, hold };
        }
    }

    fn finish(mut self, end: Nanos) -> Index<'h> {
        for (_, (place, until)) in std::mem::take(&mut self.leased) {
            self.end_lease(place, until.min(end), None);
        }
        if self.open == 0 {
            self.end_calm(end);
        }
        self.grants_of_uses();
        let mut index = self.index;
        for hold in &mut index.holds {
            hold.find_segments();
        }
        index.clients = self.clients.len();
        index.end = end;
        index
    }
}

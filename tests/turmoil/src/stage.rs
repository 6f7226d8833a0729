//! All hosts, and what can be done to them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use leasehold_checker::{Bounds, Event, History, Nanos, Violation, check};
use leasehold_simulator::rng::Rng;
use leasehold_time::simulation::Inside;
use turmoil::{Builder, Sim};

use crate::{
    client::{self, Actor, Order, Seat},
    daemon::{self, Setup},
    panics::Panics,
    record::Record,
    storage::{self, Account},
    time::{self, TICK},
};

/// How long it takes at most until both ends have found out that a connection
/// was cut: an HTTP/2 keep-alive and its answer, or the time limit of a storage call
/// for each connection that is kept.
const FOUND_OUT: Duration = Duration::from_secs(15);

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The storage account's.
    Storage,
    /// A daemon's, by its place.
    Daemon(usize),
    /// A client's, by its seat.
    Client(usize),
}

impl Host {
    fn name(self) -> String {
        match self {
            Self::Storage => storage::HOST.to_owned(),
            Self::Daemon(place) => daemon::host(place),
            Self::Client(seat) => client::host(seat),
        }
    }
}

/// The simulation.
pub struct Stage {
    // Hosts end before what they refer to.
    sim: Sim<'static>,
    seed: u64,
    panics: Panics,
    setup: Setup,
    record: Arc<Record>,
    seats: Vec<Arc<Seat>>,
    /// Disturbances that will be over: when, and their names.
    fading: Vec<(Duration, String)>,
    /// How many there were: no two have the same name.
    disturbances: u32,
    /// Those that last: what is disturbed, and the name.
    lasting: BTreeMap<String, String>,
    _inside: Inside,
}

impl Stage {
    /// A storage account and daemons, which have just been started.
    #[must_use]
    pub fn new(seed: u64, setup: Setup, places: usize, locks: u32) -> Self {
        let inside = time::enter(Rng::new(seed));
        let sim = Builder::new()
            .rng_seed(seed)
            .tick_duration(TICK)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(20))
            .simulation_duration(Duration::MAX)
            .tcp_capacity(1024)
            .enable_random_order()
            .build();
        let record = Record::new(locks);
        let account = Account::new(Arc::clone(&record));
        let mut stage = Self {
            sim,
            seed,
            panics: Panics::watch(),
            setup,
            record,
            seats: Vec::new(),
            fading: Vec::new(),
            disturbances: 0,
            lasting: BTreeMap::new(),
            _inside: inside,
        };
        stage.sim.host(Host::Storage.name(), move || Arc::clone(&account).serve());
        for place in 0..places {
            let record = Arc::clone(&stage.record);
            stage.sim.host(Host::Daemon(place).name(), move || {
                daemon::serve(place, setup, Arc::clone(&record))
            });
        }
        stage
    }

    /// A client that does as it is told, of the daemon at a place. Gives its
    /// seat.
    pub fn client(&mut self, place: usize) -> usize {
        let seat = Arc::new(Seat::default());
        self.seats.push(Arc::clone(&seat));
        let (setup, record) = (self.setup, Arc::clone(&self.record));
        self.program(move || {
            let seat = Arc::clone(&seat);
            let record = Arc::clone(&record);
            async move { seat.obey(Actor::start(place, setup, &record)).await }
        })
    }

    /// A client of its own will. Gives its seat.
    pub fn wanderer<P>(&mut self, program: impl Fn(Arc<Seat>, Arc<Record>) -> P + 'static) -> usize
    where
        P: Future<Output = turmoil::Result> + 'static,
    {
        let (seat, record) = (Arc::new(Seat::default()), Arc::clone(&self.record));
        self.seats.push(Arc::clone(&seat));
        self.program(move || program(Arc::clone(&seat), Arc::clone(&record)))
    }

    fn program<P>(&mut self, program: impl Fn() -> P + 'static) -> usize
    where
        P: Future<Output = turmoil::Result> + 'static,
    {
        let number = self.seats.len() - 1;
        self.sim.host(client::host(number), program);
        number
    }

    /// The client at a seat.
    #[must_use]
    pub fn seat(&self, seat: usize) -> &Seat {
        &self.seats[seat]
    }

    /// What is noted.
    #[must_use]
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Since the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    fn step(&mut self) {
        let begin = self.sim.elapsed();
        time::set_step(begin, begin + TICK);
        if let Err(error) = self.sim.step() {
            panic!("a host failed at {begin:?}: {error}");
        }
        assert_eq!(self.panics.count(), 0, "tasks panicked at {begin:?}");
        let end = self.sim.elapsed();
        time::set_step(end, end);
        self.record.look();
        while let Some(index) = self.fading.iter().position(|(when, _)| *when <= end) {
            let (_, what) = self.fading.remove(index);
            self.record.note(Event::Undisturbed { what });
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, length: Duration) {
        let until = self.now() + length;
        while self.now() < until {
            self.step();
        }
    }

    /// Lets time pass until something is so, but not for longer than this.
    ///
    /// # Panics
    /// If it takes longer.
    pub fn run_until(&mut self, what: &str, within: Duration, is: impl Fn(&Self) -> bool) {
        let limit = self.now() + within;
        while !is(self) {
            assert!(self.now() < limit, "{what}: not within {within:?}, by {limit:?}");
            self.step();
        }
    }

    /// Tells a client to get a lock, and waits until it has it. Gives the token.
    ///
    /// # Panics
    /// If it does not get it in time.
    pub fn acquire(&mut self, seat: usize, lock: u32, within: Duration) -> u64 {
        let before = self.seat(seat).seen().granted.len();
        self.seat(seat).order(Order::Acquire(lock, None));
        self.run_until("a grant", within, |stage| stage.seat(seat).seen().granted.len() > before);
        self.token(seat)
    }

    /// The token of a client's latest grant.
    ///
    /// # Panics
    /// If it was never granted anything.
    #[must_use]
    pub fn token(&self, seat: usize) -> u64 {
        self.seat(seat).seen().granted.last().expect("it was granted something").1
    }

    /// Something is disturbed from now on.
    pub fn disturb(&mut self, what: String) {
        self.disturbances += 1;
        let name = format!("{what} ({})", self.disturbances);
        self.record.note(Event::Disturbed { what: name.clone() });
        self.lasting.insert(what, name);
    }

    /// It will be as it was, after this long.
    pub fn calm(&mut self, what: &str, after: Duration) {
        if let Some(name) = self.lasting.remove(what) {
            self.fading.push((self.now() + after, name));
        }
    }

    /// What is sent between two hosts is lost, from now on.
    pub fn cut(&mut self, a: Host, b: Host) {
        self.disturb(between(a, b));
        self.sim.partition(a.name(), b.name());
    }

    /// What is sent from one host to another is lost, from now on.
    pub fn cut_one_way(&mut self, from: Host, to: Host) {
        self.disturb(between(from, to));
        self.sim.partition_oneway(from.name(), to.name());
    }

    /// What is sent between two hosts arrives again. Connections that lost
    /// something will never go on.
    pub fn mend(&mut self, a: Host, b: Host) {
        self.sim.repair(a.name(), b.name());
        self.calm(&between(a, b), FOUND_OUT);
    }

    /// What is sent between two hosts is kept, from now on.
    pub fn hold(&mut self, a: Host, b: Host) {
        self.disturb(between(a, b));
        self.sim.hold(a.name(), b.name());
    }

    /// What was kept arrives, all at once.
    pub fn release(&mut self, a: Host, b: Host) {
        self.sim.release(a.name(), b.name());
        self.calm(&between(a, b), FOUND_OUT);
    }

    /// A host's process is gone; the other ends of its connections hear of it.
    pub fn crash(&mut self, host: Host) {
        match host {
            Host::Storage => self.disturb(host.name()),
            Host::Daemon(place) => self.record.ended(place),
            Host::Client(seat) => {
                let number = self.seat(seat).seen().number;
                self.record.client_died(number);
            }
        }
        self.sim.crash(host.name());
    }

    /// It is started again.
    pub fn start(&mut self, host: Host) {
        self.sim.bounce(host.name());
        if host == Host::Storage {
            self.calm(&host.name(), FOUND_OUT);
        }
    }

    /// Whether its process runs.
    pub fn runs(&mut self, host: Host) -> bool {
        self.sim.is_host_running(host.name())
    }

    /// Tells a daemon to stop.
    ///
    /// # Panics
    /// If none runs there.
    pub fn stop(&self, place: usize) {
        self.record.stop(place);
    }

    /// How long things may take while nothing is disturbed.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let nanos = |length: Duration| length.as_nanos() as Nanos;
        let Setup { lease, ttl, poll, linger, .. } = self.setup;
        let trips = Duration::from_secs(2);
        let margin = Duration::from_secs(1);
        Bounds {
            takeover: nanos(lease.max(ttl + linger) + poll + margin + trips),
            expiry: nanos(ttl + linger + poll + trips),
            local_handover: nanos(trips),
            remote_handover: nanos(linger + poll + trips),
            vain: 0,
            orphan: nanos(lease.max(ttl + linger) + trips),
            recovery: nanos(lease + ttl + poll + Duration::from_secs(10)),
            visibility: 0,
            skew: 0,
        }
    }

    /// What has happened so far.
    #[must_use]
    pub fn history(&self) -> History {
        self.record.history(self.bounds())
    }

    /// What has happened so far and must not have.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        check(&self.history())
    }

    /// Checks what has happened so far.
    ///
    /// # Panics
    /// If something happened that must not.
    pub fn check(&self) {
        let violations = self.violations();
        let told: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}", told.join("\n"));
    }
}

/// With the seed, what failed can be repeated.
impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was seed {}, at {:?}", self.seed, self.now());
        }
    }
}

fn between(a: Host, b: Host) -> String {
    let mut names = [a.name(), b.name()];
    names.sort();
    names.join(" and ")
}

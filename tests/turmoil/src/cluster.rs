//! All hosts, and their faults.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use leasehold_checker::{Bounds, Event, History, Nanos, Violation, check};
use leasehold_simulator::rng::Rng;
use leasehold_time::simulation::Inside;
use turmoil::{Builder, Sim};

use crate::{
    client::{self, Actor, ClientHandle, Command},
    daemon::{self, Setup},
    panics::Panics,
    record::Record,
    storage::{self, Account},
    time::{self, TICK},
};

/// Maximum time until both ends have detected a cut connection: an HTTP/2
/// keep-alive with its timeout, or the timeout of a storage call for each
/// pooled connection.
const DETECTION_TIME: Duration = Duration::from_secs(15);

/// Host of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Host of the storage account.
    Storage,
    /// Host of a daemon, by its place.
    Daemon(usize),
    /// Host of a client, by its index.
    Client(usize),
}

impl Host {
    fn name(self) -> String {
        match self {
            Self::Storage => storage::HOST.to_owned(),
            Self::Daemon(place) => daemon::host(place),
            Self::Client(client) => client::host(client),
        }
    }
}

/// Simulation of a storage account, daemons and clients.
pub struct Cluster {
    // Hosts are dropped before the objects that they refer to.
    sim: Sim<'static>,
    seed: u64,
    panics: Panics,
    setup: Setup,
    record: Arc<Record>,
    clients: Vec<Arc<ClientHandle>>,
    /// Disturbances that end at a known time.
    ending: Vec<(Duration, String)>,
    /// Number of disturbances; makes their names unique.
    disturbances: u32,
    /// Active disturbances, with their unique names.
    active: BTreeMap<String, String>,
    _inside: Inside,
}

impl Cluster {
    /// Starts a storage account and daemons.
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
        let mut cluster = Self {
            sim,
            seed,
            panics: Panics::watch(),
            setup,
            record,
            clients: Vec::new(),
            ending: Vec::new(),
            disturbances: 0,
            active: BTreeMap::new(),
            _inside: inside,
        };
        cluster.sim.host(Host::Storage.name(), move || Arc::clone(&account).serve());
        for place in 0..places {
            let record = Arc::clone(&cluster.record);
            cluster.sim.host(Host::Daemon(place).name(), move || {
                daemon::serve(place, setup, Arc::clone(&record))
            });
        }
        cluster
    }

    /// Adds a client that runs commands, of the daemon at a place. Returns its
    /// index.
    pub fn add_client(&mut self, place: usize) -> usize {
        let client = Arc::new(ClientHandle::default());
        self.clients.push(Arc::clone(&client));
        let (setup, record) = (self.setup, Arc::clone(&self.record));
        self.program(move || {
            let client = Arc::clone(&client);
            let record = Arc::clone(&record);
            async move { client.run_commands(Actor::start(place, setup, &record)).await }
        })
    }

    /// Adds a client that runs this program. Returns its index.
    pub fn add_program<P>(
        &mut self,
        program: impl Fn(Arc<ClientHandle>, Arc<Record>) -> P + 'static,
    ) -> usize
    where
        P: Future<Output = turmoil::Result> + 'static,
    {
        let (client, record) = (Arc::new(ClientHandle::default()), Arc::clone(&self.record));
        self.clients.push(Arc::clone(&client));
        self.program(move || program(Arc::clone(&client), Arc::clone(&record)))
    }

    fn program<P>(&mut self, program: impl Fn() -> P + 'static) -> usize
    where
        P: Future<Output = turmoil::Result> + 'static,
    {
        let number = self.clients.len() - 1;
        self.sim.host(client::host(number), program);
        number
    }

    /// Returns the handle of a client.
    #[must_use]
    pub fn client(&self, client: usize) -> &ClientHandle {
        &self.clients[client]
    }

    /// Returns the recorder.
    #[must_use]
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Returns the time since the start.
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
        self.record.observe();
        while let Some(index) = self.ending.iter().position(|(when, _)| *when <= end) {
            let (_, what) = self.ending.remove(index);
            self.record.note(Event::Undisturbed { what });
        }
    }

    /// Advances time.
    pub fn run(&mut self, length: Duration) {
        let until = self.now() + length;
        while self.now() < until {
            self.step();
        }
    }

    /// Advances time until a condition is true, up to a limit.
    ///
    /// # Panics
    /// If the limit is exceeded.
    pub fn run_until(&mut self, what: &str, within: Duration, condition: impl Fn(&Self) -> bool) {
        let limit = self.now() + within;
        while !condition(self) {
            assert!(self.now() < limit, "{what}: not within {within:?}, by {limit:?}");
            self.step();
        }
    }

    /// Makes a client acquire a lock, and waits for the grant. Returns the
    /// token.
    ///
    /// # Panics
    /// If it is not granted in time.
    pub fn acquire(&mut self, client: usize, lock: u32, within: Duration) -> u64 {
        let before = self.client(client).results().granted.len();
        self.client(client).send(Command::Acquire(lock, None));
        self.run_until("a grant", within, |cluster| {
            cluster.client(client).results().granted.len() > before
        });
        self.token(client)
    }

    /// Returns the token of a client's latest grant.
    ///
    /// # Panics
    /// If it was never granted a lock.
    #[must_use]
    pub fn token(&self, client: usize) -> u64 {
        self.client(client).results().granted.last().expect("a grant").1
    }

    /// Starts a disturbance.
    pub fn disturb(&mut self, what: String) {
        self.disturbances += 1;
        let name = format!("{what} ({})", self.disturbances);
        self.record.note(Event::Disturbed { what: name.clone() });
        self.active.insert(what, name);
    }

    /// Ends a disturbance after this time.
    pub fn calm(&mut self, what: &str, after: Duration) {
        if let Some(name) = self.active.remove(what) {
            self.ending.push((self.now() + after, name));
        }
    }

    /// Cuts two hosts off from each other: data between them is lost.
    pub fn cut(&mut self, a: Host, b: Host) {
        self.disturb(between(a, b));
        self.sim.partition(a.name(), b.name());
    }

    /// Cuts one direction between two hosts: its data is lost.
    pub fn cut_one_way(&mut self, from: Host, to: Host) {
        self.disturb(between(from, to));
        self.sim.partition_oneway(from.name(), to.name());
    }

    /// Ends a cut between two hosts. Connections that lost data never recover.
    pub fn repair(&mut self, a: Host, b: Host) {
        self.sim.repair(a.name(), b.name());
        self.calm(&between(a, b), DETECTION_TIME);
    }

    /// Delays all data between two hosts.
    pub fn hold(&mut self, a: Host, b: Host) {
        self.disturb(between(a, b));
        self.sim.hold(a.name(), b.name());
    }

    /// Delivers all delayed data.
    pub fn release(&mut self, a: Host, b: Host) {
        self.sim.release(a.name(), b.name());
        self.calm(&between(a, b), DETECTION_TIME);
    }

    /// Crashes a host's process; its connections are reset.
    pub fn crash(&mut self, host: Host) {
        match host {
            Host::Storage => self.disturb(host.name()),
            Host::Daemon(place) => self.record.ended(place),
            Host::Client(client) => {
                let number = self.client(client).results().number;
                self.record.client_died(number);
            }
        }
        self.sim.crash(host.name());
    }

    /// Starts a host again.
    pub fn start(&mut self, host: Host) {
        self.sim.bounce(host.name());
        if host == Host::Storage {
            self.calm(&host.name(), DETECTION_TIME);
        }
    }

    /// Returns whether a host's process is running.
    pub fn runs(&mut self, host: Host) -> bool {
        self.sim.is_host_running(host.name())
    }

    /// Starts the shutdown of a daemon.
    ///
    /// # Panics
    /// If none runs there.
    pub fn stop(&self, place: usize) {
        self.record.stop(place);
    }

    /// Returns the time limits that apply while nothing is disturbed.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let nanos = |length: Duration| length.as_nanos() as Nanos;
        let Setup { lease, ttl, poll, linger, .. } = self.setup;
        let round_trips = Duration::from_secs(2);
        let margin = Duration::from_secs(1);
        Bounds {
            takeover: nanos(lease.max(ttl + linger) + poll + margin + round_trips),
            expiry: nanos(ttl + linger + poll + round_trips),
            local_handoff: nanos(round_trips),
            remote_handoff: nanos(linger + poll + round_trips),
            unwanted: 0,
            orphan: nanos(lease.max(ttl + linger) + round_trips),
            recovery: nanos(lease + ttl + poll + Duration::from_secs(10)),
            visibility: 0,
            skew: 0,
        }
    }

    /// Returns the history so far.
    #[must_use]
    pub fn history(&self) -> History {
        self.record.history(self.bounds())
    }

    /// Returns the violations so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        check(&self.history())
    }

    /// Checks the history so far.
    ///
    /// # Panics
    /// If there is a violation.
    pub fn check(&self) {
        let violations = self.violations();
        let messages: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}", messages.join("\n"));
    }
}

/// Prints the seed of a failed run.
impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}, at {:?}", self.seed, self.now());
        }
    }
}

fn between(a: Host, b: Host) -> String {
    let mut names = [a.name(), b.name()];
    names.sort();
    names.join(" and ")
}

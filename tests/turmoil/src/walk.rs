//! Random faults from a seed.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use leasehold_checker::{History, Violation, check};
use leasehold_client::{Guard, Moment};
use leasehold_runtime::sleep;
use leasehold_simulator::rng::Rng;

use crate::{
    client::{Actor, ClientHandle, Results},
    cluster::{Cluster, Host},
    daemon::Setup,
    record::Record,
    time,
};

/// Maximum duration of a fault, and of a daemon's shutdown.
const MAX_FAULT_TIME: Duration = Duration::from_secs(90);

/// Result of a seed.
pub struct Walk {
    /// Recorded history.
    pub history: History,
    /// Violations of the history.
    pub violations: Vec<Violation>,
    /// Simulated time of the run.
    pub length: Duration,
    /// Number of faults, by name.
    pub faults: BTreeMap<&'static str, u32>,
}

/// Fault of a run.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut(Host, Host),
    CutOneWay(Host, Host),
    Hold(Host, Host),
    /// The process crashes.
    Kill(Host),
    /// The host disappears; its connections are not reset.
    Vanish(usize),
    /// A daemon is shut down.
    Stop(usize),
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Cut(Host::Daemon(_), _) => "daemon and storage cut",
            Self::Cut(..) => "client and daemon cut",
            Self::CutOneWay(Host::Client(_), _) => "client can't send",
            Self::CutOneWay(_, Host::Client(_)) => "client can't receive",
            Self::CutOneWay(Host::Storage, _) => "daemon can't receive from the storage",
            Self::CutOneWay(..) => "daemon can't send to the storage",
            Self::Hold(Host::Daemon(_), _) => "daemon and storage delayed",
            Self::Hold(..) => "client and daemon delayed",
            Self::Kill(Host::Storage) => "storage killed",
            Self::Kill(Host::Daemon(_)) => "daemon killed",
            Self::Kill(Host::Client(_)) => "client killed",
            Self::Vanish(_) => "daemon's host vanished",
            Self::Stop(_) => "daemon shut down",
        }
    }
}

/// Runs a seed.
///
/// # Panics
/// If a daemon does not shut down, or if a client is not served after all
/// faults have ended.
#[must_use]
pub fn walk(seed: u64) -> Walk {
    let mut rng = Rng::new(seed);
    let lease = *rng.pick(&[15, 15, 20]);
    let setup = Setup {
        lease: Duration::from_secs(lease),
        ttl: Duration::from_secs(*rng.pick(&[2, 5, 10])),
        poll: Duration::from_millis(*rng.pick(&[500, 1000, 2000])),
        linger: Duration::from_millis(*rng.pick(&[0, 0, 1000])),
        drain: Duration::from_millis(*rng.pick(&[0, 1000, 5000])),
    };
    let (places, locks) = (*rng.pick(&[1, 2, 2, 3]), *rng.pick(&[1, 1, 2]));
    let mut cluster = Cluster::new(seed, setup, places, locks);
    let mut clients = Vec::new();
    let last = Rc::new(Cell::new(false));
    for _ in 0..rng.within(2..5) {
        let place = rng.index(places);
        let last = Rc::clone(&last);
        let client = cluster.add_program(move |client, record| {
            run_random_client(client, record, place, setup, locks, Rc::clone(&last))
        });
        clients.push((client, place));
    }
    let faults_end = Duration::from_nanos(rng.millis(30_000..70_000));
    let mut faults = BTreeMap::new();
    let mut ends = Vec::new();
    while cluster.now() < faults_end {
        cluster.run(rng.length(500..12_000));
        end(&mut cluster, &mut ends, &clients);
        // Restarted hosts must be up before the next fault.
        cluster.run(Duration::from_millis(50));
        let fault = draw(&clients, places, &mut rng);
        if ends.iter().any(|(_, other)| overlap(*other, fault)) {
            continue;
        }
        *faults.entry(fault.name()).or_default() += 1;
        begin(&mut cluster, fault, &clients);
        let around = *rng.pick(&[1, 2, 5, 10, lease, lease + 5]) * 1000;
        let until = cluster.now() + rng.length(around / 2..around * 3 / 2);
        ends.push((until, fault));
    }
    let limit = cluster.now() + MAX_FAULT_TIME;
    while !ends.is_empty() {
        assert!(cluster.now() < limit, "seed {seed}: faults have not ended: {ends:?}");
        cluster.run(Duration::from_millis(500));
        end(&mut cluster, &mut ends, &clients);
    }
    cluster.run(Duration::from_secs(lease + 45));
    // Each client must be granted one more lock. Daemons do not share a queue,
    // so this could not be guaranteed while other clients keep acquiring.
    last.set(true);
    let healed = cluster.now();
    cluster.run_until("a grant for each client", 2 * MAX_FAULT_TIME, |cluster| {
        let served =
            |client: usize| cluster.client(client).results().granted.iter().any(|at| at.0 > healed);
        clients.iter().all(|(client, _)| served(*client))
    });
    let history = cluster.history();
    Walk { violations: check(&history), history, length: cluster.now(), faults }
}

/// Returns whether two faults affect the same link or host: one would end the
/// other.
fn overlap(a: Fault, b: Fault) -> bool {
    let hosts = |fault| match fault {
        Fault::Cut(a, b) | Fault::CutOneWay(a, b) | Fault::Hold(a, b) => vec![a, b],
        Fault::Kill(host) => vec![host],
        Fault::Vanish(place) | Fault::Stop(place) => vec![Host::Daemon(place)],
    };
    let (a, b) = (hosts(a), hosts(b));
    let shared = a.iter().filter(|host| b.contains(host)).count();
    shared == a.len().min(b.len())
}

fn draw(clients: &[(usize, usize)], places: usize, rng: &mut Rng) -> Fault {
    let (client, place) = *rng.pick(clients);
    let (client, daemon) = (Host::Client(client), Host::Daemon(place));
    let other = rng.index(places);
    let place = Host::Daemon(other);
    match rng.within(0..15) {
        0 | 1 => Fault::Cut(client, daemon),
        2 => Fault::CutOneWay(client, daemon),
        3 => Fault::CutOneWay(daemon, client),
        4 => Fault::Hold(client, daemon),
        5 | 6 => Fault::Cut(place, Host::Storage),
        7 => Fault::CutOneWay(place, Host::Storage),
        8 => Fault::CutOneWay(Host::Storage, place),
        9 => Fault::Hold(place, Host::Storage),
        10 => Fault::Kill(Host::Storage),
        11 => Fault::Kill(place),
        12 => Fault::Kill(client),
        13 => Fault::Vanish(other),
        _ => Fault::Stop(other),
    }
}

/// Returns the links of a daemon's host.
fn links(place: usize, clients: &[(usize, usize)]) -> impl Iterator<Item = (Host, Host)> {
    let clients = clients.iter().filter(move |(_, at)| *at == place);
    let others = clients.map(|(client, _)| Host::Client(*client)).chain([Host::Storage]);
    others.map(move |other| (Host::Daemon(place), other))
}

fn begin(cluster: &mut Cluster, fault: Fault, clients: &[(usize, usize)]) {
    match fault {
        Fault::Cut(a, b) => cluster.cut(a, b),
        Fault::CutOneWay(from, to) => cluster.cut_one_way(from, to),
        Fault::Hold(a, b) => cluster.hold(a, b),
        Fault::Kill(host) => cluster.crash(host),
        Fault::Vanish(place) => {
            for (a, b) in links(place, clients) {
                cluster.cut(a, b);
            }
            cluster.crash(Host::Daemon(place));
        }
        Fault::Stop(place) => cluster.stop(place),
    }
    if let Some(what) = down(fault) {
        cluster.disturb(what);
    }
}

/// Returns the name of the disturbance by a daemon that is down or shutting
/// down.
fn down(fault: Fault) -> Option<String> {
    match fault {
        Fault::Kill(Host::Daemon(place)) | Fault::Vanish(place) | Fault::Stop(place) => {
            Some(format!("daemon-{place} down"))
        }
        _ => None,
    }
}

/// Ends the faults that are due.
fn end(cluster: &mut Cluster, ends: &mut Vec<(Duration, Fault)>, clients: &[(usize, usize)]) {
    let now = cluster.now();
    let (due, later) = ends.drain(..).partition(|(until, _)| *until <= now);
    *ends = later;
    for (until, fault) in due {
        match fault {
            Fault::Cut(a, b) | Fault::CutOneWay(a, b) => cluster.repair(a, b),
            Fault::Hold(a, b) => cluster.release(a, b),
            Fault::Kill(host) => cluster.start(host),
            Fault::Vanish(place) => {
                for (a, b) in links(place, clients) {
                    cluster.repair(a, b);
                }
                cluster.start(Host::Daemon(place));
            }
            Fault::Stop(place) if cluster.runs(Host::Daemon(place)) => {
                // The daemon is still draining.
                ends.push((until + Duration::from_secs(1), fault));
                continue;
            }
            Fault::Stop(place) => cluster.start(Host::Daemon(place)),
        }
        if let Some(what) = down(fault) {
            cluster.calm(&what, Duration::ZERO);
        }
    }
}

/// Runs a client with random actions. When `last` is set, it acquires one last
/// lock.
async fn run_random_client(
    client: Arc<ClientHandle>,
    record: Arc<Record>,
    place: usize,
    setup: Setup,
    locks: u32,
    last: Rc<Cell<bool>>,
) -> turmoil::Result {
    let mut rng = Rng::new(time::seed());
    let actor = Actor::start(place, setup, &record);
    *client.results() = Results { number: actor.number(), ..Results::default() };
    loop {
        let is_last = last.get();
        let pause = *rng.pick(&[1, 100, 1000, 5000]);
        sleep(rng.length(0..pause + 1)).await;
        let lock = rng.within(0..u64::from(locks)) as u32;
        let wait = match rng.within(0..10) {
            0 => Some(Duration::ZERO),
            1..=4 => Some(rng.length(1000..40_000)),
            _ => None,
        };
        match actor.acquire(lock, wait).await {
            Ok(guard) => {
                client.results().granted.push((time::now(), guard.token().get()));
                hold(&actor, lock, guard, setup, &mut rng, &last).await;
                if is_last {
                    // Keep its session open.
                    std::future::pending::<()>().await;
                }
            }
            // Delay before the next attempt, because a refusal can be
            // immediate.
            Err(_) => sleep(rng.length(200..1000)).await,
        }
    }
}

/// Holds the grant for a while, uses the resource, and releases it.
async fn hold(
    actor: &Actor,
    lock: u32,
    guard: Arc<Guard>,
    setup: Setup,
    rng: &mut Rng,
    last: &Cell<bool>,
) {
    let lease = setup.lease.as_millis() as u64;
    let max = *rng.pick(&[10, 500, 5000, lease, 2 * lease]);
    let until = Moment::now() + rng.length(0..max + 1);
    while !until.has_passed() && !last.get() {
        let next_use = rng.length(1..1000).min(until.remaining());
        tokio::select! {
            biased;
            _ = guard.lost() => {
                actor.record_loss(lock, &guard);
                if rng.permille(500) {
                    // The client stopped, but has not released yet.
                    sleep(rng.length(0..20_000)).await;
                }
                return;
            }
            () = sleep(next_use) => actor.use_resource(lock, &guard),
        }
    }
    // A failed release is retried in the background.
    _ = actor.release(lock, guard).await;
}

//! Faults at random, from a seed.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use leasehold_checker::{History, Violation, check};
use leasehold_client::{Guard, Moment};
use leasehold_runtime::sleep;
use leasehold_simulator::rng::Rng;

use crate::{
    client::{Actor, Seat, Seen},
    daemon::Setup,
    record::Record,
    stage::{Host, Stage},
    time,
};

/// No fault lasts longer, and no daemon takes longer to stop.
const LONGEST: Duration = Duration::from_secs(90);

/// What came of a seed.
pub struct Walk {
    /// What happened.
    pub history: History,
    /// What of it must not have.
    pub violations: Vec<Violation>,
    /// How long it was, in simulated time.
    pub length: Duration,
    /// How often which fault was.
    pub faults: BTreeMap<&'static str, u32>,
}

/// What can befall them.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut(Host, Host),
    CutOneWay(Host, Host),
    Hold(Host, Host),
    /// The process is gone.
    Kill(Host),
    /// The host is gone, without a word on its connections.
    Vanish(usize),
    /// A daemon is told to stop.
    Stop(usize),
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Cut(Host::Daemon(_), _) => "daemon and storage cut",
            Self::Cut(..) => "client and daemon cut",
            Self::CutOneWay(Host::Client(_), _) => "client can't speak",
            Self::CutOneWay(_, Host::Client(_)) => "client can't hear",
            Self::CutOneWay(Host::Storage, _) => "daemon can't hear the storage",
            Self::CutOneWay(..) => "daemon can't speak to the storage",
            Self::Hold(Host::Daemon(_), _) => "daemon and storage held back",
            Self::Hold(..) => "client and daemon held back",
            Self::Kill(Host::Storage) => "storage killed",
            Self::Kill(Host::Daemon(_)) => "daemon killed",
            Self::Kill(Host::Client(_)) => "client killed",
            Self::Vanish(_) => "daemon's host vanished",
            Self::Stop(_) => "daemon told to stop",
        }
    }
}

/// Runs a seed.
///
/// # Panics
/// If a daemon that was told to stop does not, or if a client is not served when
/// all is well again.
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
    let mut stage = Stage::new(seed, setup, places, locks);
    let mut seats = Vec::new();
    let last = Rc::new(Cell::new(false));
    for _ in 0..rng.within(2..5) {
        let place = rng.index(places);
        let last = Rc::clone(&last);
        let seat = stage.wanderer(move |seat, record| {
            wander(seat, record, place, setup, locks, Rc::clone(&last))
        });
        seats.push((seat, place));
    }
    let trouble = Duration::from_nanos(rng.millis(30_000..70_000));
    let mut faults = BTreeMap::new();
    let mut ends = Vec::new();
    while stage.now() < trouble {
        stage.run(rng.length(500..12_000));
        end(&mut stage, &mut ends, &seats);
        // What was started again is to be up before the next fault.
        stage.run(Duration::from_millis(50));
        let fault = draw(&seats, places, &mut rng);
        if ends.iter().any(|(_, other)| overlap(*other, fault)) {
            continue;
        }
        *faults.entry(fault.name()).or_default() += 1;
        begin(&mut stage, fault, &seats);
        let around = *rng.pick(&[1, 2, 5, 10, lease, lease + 5]) * 1000;
        let until = stage.now() + rng.length(around / 2..around * 3 / 2);
        ends.push((until, fault));
    }
    let limit = stage.now() + LONGEST;
    while !ends.is_empty() {
        assert!(stage.now() < limit, "seed {seed}: still not over: {ends:?}");
        stage.run(Duration::from_millis(500));
        end(&mut stage, &mut ends, &seats);
    }
    stage.run(Duration::from_secs(lease + 45));
    // Each is served once more. Between daemons there is no queue, so that could
    // not be expected while others ask again and again.
    last.set(true);
    let healed = stage.now();
    stage.run_until("a grant for each client", 2 * LONGEST, |stage| {
        let served = |seat: usize| stage.seat(seat).seen().granted.iter().any(|at| at.0 > healed);
        seats.iter().all(|(seat, _)| served(*seat))
    });
    let history = stage.history();
    Walk { violations: check(&history), history, length: stage.now(), faults }
}

/// Whether two faults concern the same link or host: then they would end each
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

fn draw(seats: &[(usize, usize)], places: usize, rng: &mut Rng) -> Fault {
    let (seat, place) = *rng.pick(seats);
    let (client, daemon) = (Host::Client(seat), Host::Daemon(place));
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

/// The links of a daemon's host.
fn links(place: usize, seats: &[(usize, usize)]) -> impl Iterator<Item = (Host, Host)> {
    let clients = seats.iter().filter(move |(_, at)| *at == place);
    let others = clients.map(|(seat, _)| Host::Client(*seat)).chain([Host::Storage]);
    others.map(move |other| (Host::Daemon(place), other))
}

fn begin(stage: &mut Stage, fault: Fault, seats: &[(usize, usize)]) {
    match fault {
        Fault::Cut(a, b) => stage.cut(a, b),
        Fault::CutOneWay(from, to) => stage.cut_one_way(from, to),
        Fault::Hold(a, b) => stage.hold(a, b),
        Fault::Kill(host) => stage.crash(host),
        Fault::Vanish(place) => {
            for (a, b) in links(place, seats) {
                stage.cut(a, b);
            }
            stage.crash(Host::Daemon(place));
        }
        Fault::Stop(place) => stage.stop(place),
    }
    if let Some(what) = down(fault) {
        stage.disturb(what);
    }
}

/// A daemon that is down, or about to be: how that is called.
fn down(fault: Fault) -> Option<String> {
    match fault {
        Fault::Kill(Host::Daemon(place)) | Fault::Vanish(place) | Fault::Stop(place) => {
            Some(format!("daemon-{place} down"))
        }
        _ => None,
    }
}

/// Ends what is due.
fn end(stage: &mut Stage, ends: &mut Vec<(Duration, Fault)>, seats: &[(usize, usize)]) {
    let now = stage.now();
    let (due, later) = ends.drain(..).partition(|(until, _)| *until <= now);
    *ends = later;
    for (until, fault) in due {
        match fault {
            Fault::Cut(a, b) | Fault::CutOneWay(a, b) => stage.mend(a, b),
            Fault::Hold(a, b) => stage.release(a, b),
            Fault::Kill(host) => stage.start(host),
            Fault::Vanish(place) => {
                for (a, b) in links(place, seats) {
                    stage.mend(a, b);
                }
                stage.start(Host::Daemon(place));
            }
            Fault::Stop(place) if stage.runs(Host::Daemon(place)) => {
                // It still waits for its holders.
                ends.push((until + Duration::from_secs(1), fault));
                continue;
            }
            Fault::Stop(place) => stage.start(Host::Daemon(place)),
        }
        if let Some(what) = down(fault) {
            stage.calm(&what, Duration::ZERO);
        }
    }
}

/// A client of its own will. When it is told so, it gets one last lock.
async fn wander(
    seat: Arc<Seat>,
    record: Arc<Record>,
    place: usize,
    setup: Setup,
    locks: u32,
    last: Rc<Cell<bool>>,
) -> turmoil::Result {
    let mut rng = Rng::new(time::seed());
    let actor = Actor::start(place, setup, &record);
    *seat.seen() = Seen { number: actor.number(), ..Seen::default() };
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
                seat.seen().granted.push((time::now(), guard.token().get()));
                hold(&actor, lock, guard, setup, &mut rng, &last).await;
                if is_last {
                    // Its session goes on.
                    std::future::pending::<()>().await;
                }
            }
            // Whoever is refused at once must not ask at once again.
            Err(_) => sleep(rng.length(200..1000)).await,
        }
    }
}

/// Holds it for a while, looks after it more or less well, and lets go.
async fn hold(
    actor: &Actor,
    lock: u32,
    guard: Arc<Guard>,
    setup: Setup,
    rng: &mut Rng,
    last: &Cell<bool>,
) {
    let lease = setup.lease.as_millis() as u64;
    let longest = *rng.pick(&[10, 500, 5000, lease, 2 * lease]);
    let until = Moment::now() + rng.length(0..longest + 1);
    while !until.has_passed() && !last.get() {
        let turn = rng.length(1..1000).min(until.remaining());
        tokio::select! {
            biased;
            _ = guard.lost() => {
                actor.lose(lock, &guard);
                if rng.permille(500) {
                    // It stopped, but has not let go yet.
                    sleep(rng.length(0..20_000)).await;
                }
                return;
            }
            () = sleep(turn) => actor.make_use(lock, &guard),
        }
    }
    // It is tried again in the background.
    _ = actor.release(lock, guard).await;
}

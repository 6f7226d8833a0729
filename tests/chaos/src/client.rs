//! A process with some clients: each takes locks in turn, uses what they
//! protect, and writes down what it asked for and was told. What must not be,
//! whatever is done to it, it says on standard error: nothing else goes there.

use std::{
    fs,
    io::{Read, stdin},
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use leasehold_checker::Event;
use leasehold_client::{Client, Error, Guard, Reason};
use leasehold_runtime::sleep;
use leasehold_time::Moment;
use nix::sys::signal::{Signal, raise};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    locks,
    record::{Recorder, nanos},
    resource::Resource,
};

/// The ttl of most sessions: it ends before their leases do.
pub(crate) const TTL: Duration = Duration::from_secs(4);

/// The ttl of the others: what they hold ends with its lease.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(20);

/// A deadline is as exact as two clocks that are read one after the other. Much
/// less than the skew that is allowed for.
const WOBBLE: Duration = Duration::from_millis(1);

/// How often a holder looks at its deadline.
const LOOK: Duration = Duration::from_millis(50);

/// What a process of clients is told when it is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) seed: u64,
    /// See [`crate::options::Options::fence`].
    pub(crate) fence: bool,
    /// Where pages and resources are.
    pub(crate) dir: PathBuf,
    /// The name of its page.
    pub(crate) page: String,
    /// The number of its first client; the others follow.
    pub(crate) first: u32,
    /// For each client, the slot of its daemon and the way to it.
    pub(crate) daemons: Vec<(u32, String)>,
    /// If there is such a file, the first client of all processes that finds it
    /// between its last look at its guard and its write makes it its own, under
    /// the second name, and stops its process.
    pub(crate) stop_sign: (PathBuf, PathBuf),
}

/// Runs until standard input ends.
pub(crate) fn run(orders: &Orders) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recorder = Arc::new(Recorder::create(&orders.dir, &orders.page));
    let (end, ending) = watch::channel(false);
    thread::spawn(move || {
        _ = stdin().read_to_end(&mut Vec::new());
        end.send_replace(true);
    });
    runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        let fenced = |lock| Resource::fenced(&orders.dir, lock, orders.fence);
        for (number, (slot, endpoint)) in (orders.first..).zip(&orders.daemons) {
            let user = User {
                number,
                slot: *slot,
                operations: 0,
                recorder: Arc::clone(&recorder),
                ending: ending.clone(),
                chance: StdRng::seed_from_u64(orders.seed ^ u64::from(number).rotate_left(32)),
                fenced: locks::all().map(fenced).collect(),
                unfenced: locks::all().map(|lock| Resource::unfenced(&orders.dir, lock)).collect(),
                stop_sign: orders.stop_sign.clone(),
            };
            clients.spawn(user.live(endpoint.clone()));
        }
        clients.join_all().await;
    });
}

/// One client, and what it needs.
struct User {
    number: u32,
    slot: u32,
    operations: u64,
    recorder: Arc<Recorder>,
    ending: watch::Receiver<bool>,
    chance: StdRng,
    fenced: Vec<Resource>,
    unfenced: Vec<Resource>,
    stop_sign: (PathBuf, PathBuf),
}

/// How an acquire is made.
#[derive(Clone, Copy)]
enum Patience {
    NoWait,
    AtMost(Duration),
    Forever,
    /// The request is dropped, which takes it back.
    DroppedAfter(Duration),
}

impl User {
    async fn live(mut self, endpoint: String) {
        let Some(client) = self.connect(&endpoint).await else { return };
        while !self.is_ending() {
            let pause = self.chance.random_range(5..150);
            sleep(Duration::from_millis(pause)).await;
            let lock = locks::draw(&mut self.chance);
            if let Some(guard) = self.acquire(&client, lock).await {
                self.hold(guard, lock).await;
            }
        }
        client.close().await;
    }

    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    fn operation(&mut self) -> u64 {
        self.operations += 1;
        u64::from(self.number) << 32 | self.operations
    }

    fn ttl(&self) -> Duration {
        if self.number % 3 == 2 { LONG_TTL } else { TTL }
    }

    async fn connect(&self, endpoint: &str) -> Option<Client> {
        let name = format!("client {}", self.number);
        while !self.is_ending() {
            let client = Client::builder(endpoint).client_name(&name).ttl(self.ttl());
            match client.connect().await {
                Ok(client) => return Some(client),
                Err(error) => {
                    if Refusal::of(&error).beyond_excuse {
                        eprintln!("{name} can't connect: {error:?}");
                    }
                    sleep(Duration::from_millis(200)).await;
                }
            }
        }
        None
    }

    fn patience(&mut self, lock: u32) -> Patience {
        match self.chance.random_range(0..100) {
            0..12 => Patience::NoWait,
            12..24 => {
                Patience::DroppedAfter(Duration::from_millis(self.chance.random_range(1..2000)))
            }
            // Otherwise most would wait for this one, and for long.
            _ if lock == locks::LONG => {
                Patience::AtMost(Duration::from_millis(self.chance.random_range(500..10_000)))
            }
            24..80 => {
                Patience::AtMost(Duration::from_millis(self.chance.random_range(500..25_000)))
            }
            _ => Patience::Forever,
        }
    }

    async fn acquire(&mut self, client: &Client, lock: u32) -> Option<Guard> {
        let patience = self.patience(lock);
        let (op, daemon) = (self.operation(), self.slot);
        let (recorder, mut queued) = (Arc::clone(&self.recorder), false);
        let request = client.lock(locks::name(lock)).on_progress(move |progress| {
            // Again, if it had to ask again.
            if progress.position > 0 && !queued {
                recorder.now(Event::Queued { op });
            }
            queued = progress.position > 0;
        });
        let (request, dropped_after) = match patience {
            Patience::NoWait => (request.no_wait(), Duration::MAX),
            Patience::AtMost(limit) => (request.wait(limit), Duration::MAX),
            Patience::Forever => (request, Duration::MAX),
            Patience::DroppedAfter(length) => (request, length),
        };
        self.recorder.now(Event::Acquire { op, client: self.number, daemon, lock });
        let answer = tokio::select! {
            answer = request.acquire() => answer.map_err(|error| {
                let refusal = Refusal::of(&error);
                if refusal.beyond_excuse {
                    eprintln!("client {} was refused {}: {error:?}", self.number, locks::name(lock));
                }
                (refusal.why, refusal.faulty)
            }),
            () = sleep(dropped_after) => Err(("dropped", false)),
            _ = self.ending.wait_for(|ending| *ending) => Err(("the end", false)),
        };
        match answer {
            Ok(guard) => {
                self.recorder.now(Event::Granted { op, token: guard.token().get() });
                Some(guard)
            }
            Err((why, faulty)) => {
                let why = why.to_owned();
                self.recorder.now(Event::Refused { op, why, faulty, canceled: false });
                None
            }
        }
    }

    /// How long a lock is held: mostly short, at times longer than a ttl or a
    /// third of a lease. One lock is there for those who need it for longer
    /// than a lease lasts.
    fn length(&mut self, lock: u32) -> Duration {
        Duration::from_millis(match self.chance.random_range(0..100) {
            0..50 if lock == locks::LONG => self.chance.random_range(6000..20_000),
            0..95 => self.chance.random_range(5..80),
            95..97 => self.chance.random_range(500..2500),
            // Who is cut off meanwhile learns from its own clock that it lost.
            _ => self.chance.random_range(4000..9000),
        })
    }

    /// Whether it may act. Loss is known in time: no guard stands at a moment
    /// when its deadline had passed, wherever the process is stopped in between.
    fn stands(&self, guard: &Guard) -> bool {
        let now = Moment::now();
        let stands = guard.is_valid();
        let deadline = guard.deadline();
        if stands && deadline + WOBBLE <= now {
            let late = now.since(deadline);
            eprintln!("client {}, {guard:?}: valid {late:?} after its deadline", self.number);
        }
        stands
    }

    async fn hold(&mut self, guard: Guard, lock: u32) {
        let mut ending = self.ending.clone();
        let (client, token) = (self.number, guard.token().get());
        let length = self.length(lock);
        let mut until = guard.deadline();
        self.recorder.now(Event::Valid { client, lock, token, until: nanos(until) });
        let (fenced, unfenced) = (&self.fenced[lock as usize], &self.unfenced[lock as usize]);
        let used = |at, fenced, accepted| {
            self.recorder.then(at, Event::Used { client, lock, token, fenced, accepted });
        };

        let (at, read) = fenced.read_fenced(token);
        used(at, true, read.is_ok());
        let seen = unfenced.read_unfenced();
        let end = Moment::now() + length;
        while self.stands(&guard) && !end.has_passed() && !self.is_ending() {
            tokio::select! {
                _ = guard.lost() => {}
                _ = ending.wait_for(|ending| *ending) => {}
                () = sleep(end.remaining().min(LOOK)) => {}
            }
            let now = guard.deadline();
            let moved = now.since(until).max(until.since(now));
            if self.stands(&guard) && moved > WOBBLE {
                until = now;
                self.recorder.now(Event::Valid { client, lock, token, until: nanos(until) });
            }
        }
        let write = |read| {
            let (at, written) = fenced.write_fenced(token, read);
            used(at, true, written.is_ok());
        };
        // As a careful program does; but nothing keeps it from being stopped
        // between the look and the write.
        if self.stands(&guard) {
            let (sign, own) = &self.stop_sign;
            if self.ttl() == TTL && fs::rename(sign, own).is_ok() {
                raise(Signal::SIGSTOP).unwrap();
            }
            read.into_iter().for_each(write);
            used(unfenced.write_unfenced(seen), false, true);
        } else {
            // With a token it may be as careless as it likes.
            read.into_iter().for_each(write);
        }

        if !self.stands(&guard) {
            self.recorder.now(Event::Lost { client, lock, token });
            return;
        }
        let op = self.operation();
        self.recorder.now(Event::Release { op, client, lock, token });
        match guard.release().await {
            Ok(()) => self.recorder.now(Event::Released { op }),
            Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
            Err(error) => eprintln!("client {client} could not release: {error:?}"),
        }
    }
}

/// Why a lock was not granted.
struct Refusal {
    /// Short, so that refusals can be counted by it.
    why: &'static str,
    /// See [`Event::Refused`].
    faulty: bool,
    /// Nothing that is done here brings it about.
    beyond_excuse: bool,
}

impl Refusal {
    fn of(error: &Error) -> Self {
        let (why, faulty, beyond_excuse) = match error {
            Error::NotGranted { reason: Reason::Held, .. } => ("held", false, false),
            Error::NotGranted { .. } => ("timed out", false, false),
            Error::Unavailable { message, .. }
                if message.ends_with("the daemon is shutting down") =>
            {
                ("the daemon is stopping", false, false)
            }
            Error::Unavailable { .. } => ("unavailable", true, false),
            Error::NeedsOperator { .. } => ("needs an operator", true, true),
            Error::Invalid { .. } => ("invalid", true, true),
            _ => ("other", true, true),
        };
        Self { why, faulty, beyond_excuse }
    }
}

//! A process with some clients: each takes locks in turn, uses what they
//! protect, and writes down what it asked for and was told.

use std::{
    fs,
    io::{Read, stdin},
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use leasehold::clock::{Moment, sleep};
use leasehold_check::Event;
use leasehold_client::{Client, Error, Guard, Reason};
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
const LONG_TTL: Duration = Duration::from_secs(20);

/// A deadline is as exact as two clocks that are read one after the other. Much
/// less than the skew that is allowed for.
const WOBBLE: Duration = Duration::from_millis(1);

/// How often a holder looks at its deadline.
const LOOK: Duration = Duration::from_millis(50);

/// What a process of clients is told when it is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) seed: u64,
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
        for (number, (slot, endpoint)) in (orders.first..).zip(&orders.daemons) {
            let user = User {
                number,
                slot: *slot,
                operations: 0,
                recorder: Arc::clone(&recorder),
                ending: ending.clone(),
                chance: StdRng::seed_from_u64(orders.seed ^ u64::from(number).rotate_left(32)),
                fenced: locks::all().map(|lock| Resource::fenced(&orders.dir, lock)).collect(),
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
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
        None
    }

    fn patience(&mut self) -> Patience {
        match self.chance.random_range(0..100) {
            0..12 => Patience::NoWait,
            12..24 => {
                Patience::DroppedAfter(Duration::from_millis(self.chance.random_range(1..2000)))
            }
            24..80 => {
                Patience::AtMost(Duration::from_millis(self.chance.random_range(500..25_000)))
            }
            _ => Patience::Forever,
        }
    }

    async fn acquire(&mut self, client: &Client, lock: u32) -> Option<Guard> {
        let patience = self.patience();
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
            answer = request.acquire() => answer.map_err(|error| why(&error)),
            () = sleep(dropped_after) => Err("dropped".to_owned()),
            _ = self.ending.wait_for(|ending| *ending) => Err("the end".to_owned()),
        };
        match answer {
            Ok(guard) => {
                self.recorder.now(Event::Granted { op, token: guard.token() });
                Some(guard)
            }
            Err(why) => {
                self.recorder.now(Event::Refused { op, why, faulty: false });
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
            0..96 => self.chance.random_range(5..80),
            96..99 => self.chance.random_range(500..2500),
            _ => self.chance.random_range(4000..7000),
        })
    }

    async fn hold(&mut self, guard: Guard, lock: u32) {
        let (client, token) = (self.number, guard.token());
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
        while guard.is_valid() && !end.has_passed() {
            tokio::select! {
                _ = guard.lost() => {}
                () = sleep(end.remaining().min(LOOK)) => {}
            }
            let now = guard.deadline();
            let moved = now.since(until).max(until.since(now));
            if guard.is_valid() && moved > WOBBLE {
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
        if guard.is_valid() {
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

        if !guard.is_valid() {
            self.recorder.now(Event::Lost { client, lock, token });
            return;
        }
        let op = self.operation();
        self.recorder.now(Event::Release { op, client, lock, token });
        if guard.release().await.is_ok() {
            self.recorder.now(Event::Released { op });
        }
    }
}

/// Short, so that refusals can be counted by it.
fn why(error: &Error) -> String {
    match error {
        Error::NotGranted { reason: Reason::Held, .. } => "held",
        Error::NotGranted { .. } => "timed out",
        Error::Lost { .. } => "lost",
        Error::Unavailable { .. } => "unavailable",
        Error::Invalid { .. } => "invalid",
        Error::NeedsOperator { .. } => "needs an operator",
        _ => "other",
    }
    .to_owned()
}

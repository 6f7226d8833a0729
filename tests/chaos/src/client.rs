//! Process with several clients. Each client acquires locks, uses the protected
//! resources, and records its requests and their results. Standard error
//! receives only findings that no fault explains.

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

/// TTL of most sessions, shorter than the lease duration.
pub(crate) const TTL: Duration = Duration::from_secs(4);

/// TTL of the other sessions, longer than the lease duration: their grants end
/// with the lease.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(20);

/// Tolerance for deadlines that are computed from two clocks read one after the
/// other. Much smaller than the tolerated skew.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(1);

/// Interval at which a holder checks its deadline.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Configuration of a client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientConfig {
    pub(crate) seed: u64,
    /// See [`crate::options::Options::fence`].
    pub(crate) fence: bool,
    /// Directory of recordings and resources.
    pub(crate) dir: PathBuf,
    /// Name of its recording.
    pub(crate) recording: String,
    /// Number of its first client; the others follow.
    pub(crate) first: u32,
    /// Slot and endpoint of each client's daemon.
    pub(crate) daemons: Vec<(u32, String)>,
    /// Pause request: the first client that finds the first file between its
    /// last check of the guard and its write renames it to the second, and
    /// pauses its process.
    pub(crate) pause_request: (PathBuf, PathBuf),
}

/// Runs until standard input ends.
pub(crate) fn run(config: &ClientConfig) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recorder = Arc::new(Recorder::create(&config.dir, &config.recording));
    let (end, ending) = watch::channel(false);
    thread::spawn(move || {
        _ = stdin().read_to_end(&mut Vec::new());
        end.send_replace(true);
    });
    runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        let fenced = |lock| Resource::fenced(&config.dir, lock, config.fence);
        for (number, (slot, endpoint)) in (config.first..).zip(&config.daemons) {
            let user = User {
                number,
                slot: *slot,
                operations: 0,
                recorder: Arc::clone(&recorder),
                ending: ending.clone(),
                chance: StdRng::seed_from_u64(config.seed ^ u64::from(number).rotate_left(32)),
                fenced: locks::all().map(fenced).collect(),
                unfenced: locks::all().map(|lock| Resource::unfenced(&config.dir, lock)).collect(),
                pause_request: config.pause_request.clone(),
            };
            clients.spawn(user.run(endpoint.clone()));
        }
        clients.join_all().await;
    });
}

/// Client with its state.
struct User {
    number: u32,
    slot: u32,
    operations: u64,
    recorder: Arc<Recorder>,
    ending: watch::Receiver<bool>,
    chance: StdRng,
    fenced: Vec<Resource>,
    unfenced: Vec<Resource>,
    pause_request: (PathBuf, PathBuf),
}

/// Wait limit of an acquire.
#[derive(Clone, Copy)]
enum WaitLimit {
    NoWait,
    AtMost(Duration),
    Forever,
    /// The request is dropped, which cancels it.
    DroppedAfter(Duration),
}

impl User {
    async fn run(mut self, endpoint: String) {
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
                    if Refusal::of(&error).is_unexpected {
                        eprintln!("{name} can't connect: {error:?}");
                    }
                    sleep(Duration::from_millis(200)).await;
                }
            }
        }
        None
    }

    fn wait_limit(&mut self, lock: u32) -> WaitLimit {
        match self.chance.random_range(0..100) {
            0..12 => WaitLimit::NoWait,
            12..24 => {
                WaitLimit::DroppedAfter(Duration::from_millis(self.chance.random_range(1..2000)))
            }
            // This lock is held long: without a limit, most clients would wait
            // for it.
            _ if lock == locks::LONG => {
                WaitLimit::AtMost(Duration::from_millis(self.chance.random_range(500..10_000)))
            }
            24..80 => {
                WaitLimit::AtMost(Duration::from_millis(self.chance.random_range(500..25_000)))
            }
            _ => WaitLimit::Forever,
        }
    }

    async fn acquire(&mut self, client: &Client, lock: u32) -> Option<Guard> {
        let wait_limit = self.wait_limit(lock);
        let (op, daemon) = (self.operation(), self.slot);
        let (recorder, mut queued) = (Arc::clone(&self.recorder), false);
        let request = client.lock(locks::name(lock)).on_progress(move |progress| {
            // Record it once per queue entry: a repeated request is queued
            // again.
            if progress.position > 0 && !queued {
                recorder.now(Event::Queued { op });
            }
            queued = progress.position > 0;
        });
        let (request, dropped_after) = match wait_limit {
            WaitLimit::NoWait => (request.no_wait(), Duration::MAX),
            WaitLimit::AtMost(limit) => (request.wait(limit), Duration::MAX),
            WaitLimit::Forever => (request, Duration::MAX),
            WaitLimit::DroppedAfter(length) => (request, length),
        };
        self.recorder.now(Event::Acquire { op, client: self.number, daemon, lock });
        let answer = tokio::select! {
            answer = request.acquire() => answer.map_err(|error| {
                let refusal = Refusal::of(&error);
                if refusal.is_unexpected {
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

    /// Returns the time to hold a lock: mostly short, sometimes longer than a
    /// TTL or a third of the lease duration. One lock is held longer than the
    /// lease duration.
    fn hold_time(&mut self, lock: u32) -> Duration {
        Duration::from_millis(match self.chance.random_range(0..100) {
            0..50 if lock == locks::LONG => self.chance.random_range(6000..20_000),
            0..95 => self.chance.random_range(5..80),
            95..97 => self.chance.random_range(500..2500),
            // A client that is cut off in the meantime detects the loss by its
            // own clock.
            _ => self.chance.random_range(4000..9000),
        })
    }

    /// Returns whether the guard is valid. Reports a guard that is valid after
    /// its deadline: a loss must be detected in time, even if the process was
    /// paused.
    fn check_guard(&self, guard: &Guard) -> bool {
        let now = Moment::now();
        let is_valid = guard.is_valid();
        let deadline = guard.deadline();
        if is_valid && deadline + DEADLINE_TOLERANCE <= now {
            let late = now.since(deadline);
            eprintln!("client {}, {guard:?}: valid {late:?} after its deadline", self.number);
        }
        is_valid
    }

    async fn hold(&mut self, guard: Guard, lock: u32) {
        let mut ending = self.ending.clone();
        let (client, token) = (self.number, guard.token().get());
        let length = self.hold_time(lock);
        let mut until = guard.deadline();
        self.recorder.now(Event::Valid { client, lock, token, until: nanos(until) });
        let (fenced, unfenced) = (&self.fenced[lock as usize], &self.unfenced[lock as usize]);
        let used = |at, fenced, accepted| {
            self.recorder.at(at, Event::Used { client, lock, token, fenced, accepted });
        };

        let (at, read) = fenced.read_fenced(token);
        used(at, true, read.is_ok());
        let seen = unfenced.read_unfenced();
        let end = Moment::now() + length;
        while self.check_guard(&guard) && !end.has_passed() && !self.is_ending() {
            tokio::select! {
                _ = guard.lost() => {}
                _ = ending.wait_for(|ending| *ending) => {}
                () = sleep(end.remaining().min(DEADLINE_CHECK_INTERVAL)) => {}
            }
            let now = guard.deadline();
            let moved = now.since(until).max(until.since(now));
            if self.check_guard(&guard) && moved > DEADLINE_TOLERANCE {
                until = now;
                self.recorder.now(Event::Valid { client, lock, token, until: nanos(until) });
            }
        }
        let write = |read| {
            let (at, written) = fenced.write_fenced(token, read);
            used(at, true, written.is_ok());
        };
        // A correct client checks the guard before each write, but may still be
        // paused between the check and the write.
        if self.check_guard(&guard) {
            let (request_file, own) = &self.pause_request;
            if self.ttl() == TTL && fs::rename(request_file, own).is_ok() {
                raise(Signal::SIGSTOP).unwrap();
            }
            read.into_iter().for_each(write);
            used(unfenced.write_unfenced(seen), false, true);
        } else {
            // With a token, the write is safe even without a check.
            read.into_iter().for_each(write);
        }

        if !self.check_guard(&guard) {
            self.recorder.now(Event::Lost { client, lock, token });
            return;
        }
        let op = self.operation();
        self.recorder.now(Event::Release { op, client, lock, token });
        match guard.release().await {
            Ok(()) => self.recorder.now(Event::Released { op }),
            Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
            Err(error) => eprintln!("client {client} failed to release: {error:?}"),
        }
    }
}

/// Reason why a lock was not granted.
struct Refusal {
    /// Short name by which refusals are counted.
    why: &'static str,
    /// See [`Event::Refused`].
    faulty: bool,
    /// True if no injected fault can cause it.
    is_unexpected: bool,
}

impl Refusal {
    fn of(error: &Error) -> Self {
        let (why, faulty, is_unexpected) = match error {
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
        Self { why, faulty, is_unexpected }
    }
}

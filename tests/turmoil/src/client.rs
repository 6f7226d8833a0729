//! A host with a client: a program that uses the product's client library, as
//! users' do.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_checker::Event;
use leasehold_client::{Broken, Client, Error, Guard, Loss, Progress};
use leasehold_runtime::{
    simulation::{self, Route},
    sleep,
};
use leasehold_simulator::sim_state::lock_name;
use tokio::sync::Notify;

use crate::{daemon::Setup, line::Line, record::Record, time};

/// How often a holder uses what the lock guards.
const USE_EVERY: Duration = Duration::from_millis(400);

/// The name of a client's host.
#[must_use]
pub fn host(seat: usize) -> String {
    format!("client-{seat}")
}

/// A client process that notes what it does.
pub struct Actor {
    number: u32,
    client: Client,
    record: Arc<Record>,
    lease: Duration,
}

impl Actor {
    /// A new process, for the daemon at a place.
    ///
    /// # Panics
    /// If the library does not take the settings.
    #[must_use]
    pub fn start(place: usize, setup: Setup, record: &Arc<Record>) -> Self {
        let number = record.next_client(place);
        let line = Line { client: number, place, record: Arc::clone(record) };
        let builder = Client::builder(format!("http://daemon-{place}:7420"))
            .ttl(setup.ttl)
            .client_name(format!("client {number}"));
        let connected = simulation::connect(Route::Dial(Arc::new(line)), builder.connect());
        let client = connected.expect("it does no I/O").expect("the settings are acceptable");
        Self { number, client, record: Arc::clone(record), lease: setup.lease }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The session as the daemon knows it.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        self.client.session().map(|session| session.id)
    }

    /// Asks for a lock, and waits for so long; for ever if there is no limit.
    ///
    /// # Errors
    /// As the library has it.
    pub async fn acquire(&self, lock: u32, wait: Option<Duration>) -> Result<Arc<Guard>, Error> {
        let (client, record) = (self.number, Arc::clone(&self.record));
        let queued = move |progress: Progress| {
            if progress.position > 0 {
                record.queued(client);
            }
        };
        let request = self.client.lock(lock_name(lock)).lease_duration(self.lease);
        let request = request.on_progress(queued);
        let request = match wait {
            Some(Duration::ZERO) => request.no_wait(),
            Some(wait) => request.wait(wait),
            None => request,
        };
        self.record.acquire(client, lock);
        let outcome = request.acquire().await.map(Arc::new);
        match &outcome {
            Ok(guard) => self.record.granted(client, lock, guard),
            Err(error) => self.record.refused(client, error),
        }
        outcome
    }

    /// Uses what the lock guards, if it still counts on the lock.
    pub fn make_use(&self, lock: u32, guard: &Guard) {
        if guard.is_valid() {
            self.record.use_resource(self.number, lock, guard.token().get());
        }
    }

    /// Breaks a lock, whoever holds it, as an operator does.
    ///
    /// # Errors
    /// As the library has it.
    pub async fn break_lock(&self, lock: u32) -> Result<Broken, Error> {
        self.client.break_lock(&lock_name(lock)).by("operator").reason("a simulation").await
    }

    /// It has learnt that it lost the lock.
    pub fn lose(&self, lock: u32, guard: &Guard) {
        self.record.lost(self.number, lock, guard.token().get());
    }

    /// Gives a lock back.
    ///
    /// # Errors
    /// As the library has it.
    pub async fn release(&self, lock: u32, guard: Arc<Guard>) -> Result<(), Error> {
        let op = self.record.release(self.number, lock, guard.token().get());
        let Some(guard) = Arc::into_inner(guard) else { return Ok(()) };
        guard.release().await?;
        self.record.note(Event::Released { op });
        Ok(())
    }
}

/// What a client is told to do.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Ask for this lock and wait for so long; for ever if there is no limit.
    Acquire(u32, Option<Duration>),
    /// Give it back.
    Release,
    /// Take this lock from whoever holds it.
    Break(u32),
}

/// What a client has been told by its library, and when.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The number of its process.
    pub number: u32,
    /// Its session, as of the last time that something happened.
    pub session: Option<String>,
    /// Grants: when, and the token.
    pub granted: Vec<(Duration, u64)>,
    /// Losses: when, until when it might have counted on it, and why.
    pub lost: Vec<(Duration, Duration, Loss)>,
    /// Refusals.
    pub refused: Vec<(Duration, Error)>,
    /// Warnings.
    pub warned: Vec<(Duration, String)>,
    /// Releases, and how they went.
    pub released: Vec<(Duration, Result<(), Error>)>,
    /// Breaks, and how they went.
    pub broken: Vec<(Duration, Result<Broken, Error>)>,
}

/// Where a client sits that does as it is told. If its process crashes, the next
/// one sits there.
#[derive(Default)]
pub struct Seat {
    orders: Mutex<VecDeque<Order>>,
    news: Notify,
    seen: Mutex<Seen>,
}

impl Seat {
    /// Tells the client to do something when it has done what it was told before.
    pub fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        self.news.notify_one();
    }

    /// What it has been told.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Order {
        loop {
            let order = self.orders.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(order) = order {
                return order;
            }
            self.news.notified().await;
        }
    }

    /// Does what it is told. Never ends.
    ///
    /// # Errors
    /// None.
    pub async fn obey(self: Arc<Self>, actor: Actor) -> turmoil::Result {
        *self.seen() = Seen { number: actor.number(), ..Seen::default() };
        loop {
            match self.next().await {
                Order::Acquire(lock, wait) => match actor.acquire(lock, wait).await {
                    Ok(guard) => {
                        self.seen().granted.push((time::now(), guard.token().get()));
                        self.hold(&actor, lock, guard).await;
                    }
                    Err(error) => self.seen().refused.push((time::now(), error)),
                },
                Order::Break(lock) => {
                    let outcome = actor.break_lock(lock).await;
                    self.seen().broken.push((time::now(), outcome));
                }
                Order::Release => {}
            }
        }
    }

    async fn hold(&self, actor: &Actor, lock: u32, guard: Arc<Guard>) {
        loop {
            self.seen().session = actor.session();
            tokio::select! {
                biased;
                loss = guard.lost() => {
                    actor.lose(lock, &guard);
                    let until = Duration::from_nanos(time::true_time(guard.deadline()));
                    self.seen().lost.push((time::now(), until, loss));
                    return;
                }
                risk = guard.at_risk() => {
                    self.seen().warned.push((time::now(), risk.message));
                }
                order = self.next() => {
                    if matches!(order, Order::Release) {
                        let outcome = actor.release(lock, guard).await;
                        self.seen().released.push((time::now(), outcome));
                        return;
                    }
                }
                () = sleep(USE_EVERY) => actor.make_use(lock, &guard),
            }
        }
    }
}

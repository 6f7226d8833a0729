//! Host with a client, which uses the product's client library.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_checker::Event;
use leasehold_client::{BreakResult, Client, Error, Guard, Loss, Progress};
use leasehold_runtime::{
    simulation::{self, Route},
    sleep,
};
use leasehold_simulator::sim_state::lock_name;
use tokio::sync::Notify;

use crate::{daemon::Setup, link::ClientLink, record::Record, time};

/// Interval at which a holder uses the protected resource.
const USE_INTERVAL: Duration = Duration::from_millis(400);

/// Returns the name of a client's host.
#[must_use]
pub fn host(client: usize) -> String {
    format!("client-{client}")
}

/// Client process that records its actions.
pub struct Actor {
    number: u32,
    client: Client,
    record: Arc<Record>,
    lease: Duration,
}

impl Actor {
    /// Starts a client process of the daemon at a place.
    ///
    /// # Panics
    /// If the library rejects the settings.
    #[must_use]
    pub fn start(place: usize, setup: Setup, record: &Arc<Record>) -> Self {
        let number = record.next_client(place);
        let link = ClientLink { client: number, place, record: Arc::clone(record) };
        let builder = Client::builder(format!("http://daemon-{place}:7420"))
            .ttl(setup.ttl)
            .client_name(format!("client {number}"));
        let connected = simulation::connect(Route::Dial(Arc::new(link)), builder.connect());
        let client = connected.expect("connecting does no I/O").expect("the settings are valid");
        Self { number, client, record: Arc::clone(record), lease: setup.lease }
    }

    /// Returns the number of the process.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the session ID.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        self.client.session().map(|session| session.id)
    }

    /// Acquires a lock; waits without a limit if `wait` is `None`.
    ///
    /// # Errors
    /// Those of the library.
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

    /// Uses the protected resource if the guard is valid.
    pub fn use_resource(&self, lock: u32, guard: &Guard) {
        if guard.is_valid() {
            self.record.use_resource(self.number, lock, guard.token().get());
        }
    }

    /// Breaks a lock as an operator.
    ///
    /// # Errors
    /// Those of the library.
    pub async fn break_lock(&self, lock: u32) -> Result<BreakResult, Error> {
        self.client.break_lock(&lock_name(lock)).by("operator").reason("a simulation").await
    }

    /// Records that the client was notified of a loss.
    pub fn record_loss(&self, lock: u32, guard: &Guard) {
        self.record.lost(self.number, lock, guard.token().get());
    }

    /// Releases a lock.
    ///
    /// # Errors
    /// Those of the library.
    pub async fn release(&self, lock: u32, guard: Arc<Guard>) -> Result<(), Error> {
        let op = self.record.release(self.number, lock, guard.token().get());
        let Some(guard) = Arc::into_inner(guard) else { return Ok(()) };
        guard.release().await?;
        self.record.note(Event::Released { op });
        Ok(())
    }
}

/// Command to a client.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// Acquire this lock; wait without a limit if there is none.
    Acquire(u32, Option<Duration>),
    /// Release the lock.
    Release,
    /// Break this lock.
    Break(u32),
}

/// Results that a client received from its library, with their times.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Number of the process.
    pub number: u32,
    /// Session ID, as of the last event.
    pub session: Option<String>,
    /// Grants: time and token.
    pub granted: Vec<(Duration, u64)>,
    /// Losses: time, deadline and reason.
    pub lost: Vec<(Duration, Duration, Loss)>,
    /// Refusals.
    pub refused: Vec<(Duration, Error)>,
    /// Warnings.
    pub warned: Vec<(Duration, String)>,
    /// Releases and their results.
    pub released: Vec<(Duration, Result<(), Error>)>,
    /// Breaks and their results.
    pub broken: Vec<(Duration, Result<BreakResult, Error>)>,
}

/// Handle of a client that runs commands. It outlives the client's process.
#[derive(Default)]
pub struct ClientHandle {
    commands: Mutex<VecDeque<Command>>,
    command_added: Notify,
    results: Mutex<Results>,
}

impl ClientHandle {
    /// Queues a command for the client.
    pub fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.command_added.notify_one();
    }

    /// Returns the results that the client received.
    pub fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Command {
        loop {
            let command = self.commands.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(command) = command {
                return command;
            }
            self.command_added.notified().await;
        }
    }

    /// Runs commands. Never returns.
    ///
    /// # Errors
    /// None.
    pub async fn run_commands(self: Arc<Self>, actor: Actor) -> turmoil::Result {
        *self.results() = Results { number: actor.number(), ..Results::default() };
        loop {
            match self.next().await {
                Command::Acquire(lock, wait) => match actor.acquire(lock, wait).await {
                    Ok(guard) => {
                        self.results().granted.push((time::now(), guard.token().get()));
                        self.hold(&actor, lock, guard).await;
                    }
                    Err(error) => self.results().refused.push((time::now(), error)),
                },
                Command::Break(lock) => {
                    let outcome = actor.break_lock(lock).await;
                    self.results().broken.push((time::now(), outcome));
                }
                Command::Release => {}
            }
        }
    }

    async fn hold(&self, actor: &Actor, lock: u32, guard: Arc<Guard>) {
        loop {
            self.results().session = actor.session();
            tokio::select! {
                biased;
                loss = guard.lost() => {
                    actor.record_loss(lock, &guard);
                    let until = Duration::from_nanos(time::true_time(guard.deadline()));
                    self.results().lost.push((time::now(), until, loss));
                    return;
                }
                risk = guard.at_risk() => {
                    self.results().warned.push((time::now(), risk.message));
                }
                command = self.next() => {
                    if matches!(command, Command::Release) {
                        let outcome = actor.release(lock, guard).await;
                        self.results().released.push((time::now(), outcome));
                        return;
                    }
                }
                () = sleep(USE_INTERVAL) => actor.use_resource(lock, &guard),
            }
        }
    }
}

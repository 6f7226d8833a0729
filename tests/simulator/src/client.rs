//! Clients: programs that use the product's client library.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use leasehold_checker::Event;
use leasehold_client::{Client, Error, Guard, Leadership, Loss, Reason};
use leasehold_runtime::{
    simulation::{self, Peek, Route},
    sleep,
};
use leasehold_time::Moment;

use crate::{
    link::ClientLink,
    observer,
    plan::Plan,
    rng::Rng,
    sim_state::{Hold, count, lock_name, record, sim},
    world::{Nanos, SECOND},
};

/// Minimum time without a pause before a loss notification is recorded. Timers
/// that expired during a pause fire late, by less than this.
const MIN_EVEN_RUN: Nanos = 2 * SECOND;

/// Grant held by a client.
pub enum Held {
    /// Lock.
    Lock(Guard),
    /// Leadership of an election.
    Lead(Leadership),
}

impl Held {
    /// Returns the deadline and whether the grant is valid, without updating
    /// the guard.
    #[must_use]
    pub fn peek(&self) -> Option<(Moment, bool)> {
        match self {
            Self::Lock(guard) => guard.peek(),
            Self::Lead(lead) => lead.peek(),
        }
    }

    fn is_valid(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_valid(),
            Self::Lead(lead) => lead.is_valid(),
        }
    }

    fn token(&self) -> u64 {
        match self {
            Self::Lock(guard) => guard.token().get(),
            Self::Lead(lead) => lead.token().get(),
        }
    }

    async fn lost(&self) -> Loss {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Lead(lead) => lead.lost().await,
        }
    }

    async fn at_risk(&self) {
        match self {
            Self::Lock(guard) => _ = guard.at_risk().await,
            Self::Lead(lead) => _ = lead.at_risk().await,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Lead(lead) => lead.resign().await,
        }
    }
}

/// Starts a client of the daemon at a place.
///
/// # Panics
/// If the library rejects the plan's settings.
#[allow(clippy::expect_used, reason = "a bug in the simulation")]
pub fn start(place: usize) {
    let sim = sim();
    let mut rng = sim.rng.borrow_mut().split();
    let clocks = sim.plan.clocks(sim.world.now(), &mut rng);
    let machine = sim.world.add_machine(clocks, rng.split());
    let number = sim.add_session(machine, place);
    let fenced = sim.plan.fenced && number.is_multiple_of(2);
    let builder = Client::builder("http://daemon:7420")
        .ttl(sim.plan.ttl)
        .client_name(format!("client {number}"))
        .fenced(fenced);
    let number = Arc::new(AtomicU32::new(number));
    let client = sim.world.as_machine(machine, || {
        let link = Arc::new(ClientLink { client: Arc::clone(&number), place, fenced });
        let connected = simulation::connect(Route::Link(link), builder.connect());
        connected.expect("connecting does no I/O").expect("the settings are valid")
    });
    let Plan {
        locks, client_tasks, short_waits, cancels, rivals, lease, max_lease, observed, ..
    } = sim.plan;
    let client_tasks = if rivals { client_tasks.max(2) } else { client_tasks };
    for task in 0..client_tasks {
        let (number, client, rng) = (Arc::clone(&number), client.clone(), rng.split());
        let locks: Vec<_> =
            (0..locks).filter(|lock| rivals || lock % client_tasks == task).collect();
        if locks.is_empty() {
            continue;
        }
        let program = Program {
            number,
            client,
            rng,
            locks,
            short_waits,
            cancels,
            lease,
            max_lease,
            observed,
        };
        sim.world.spawn(machine, Box::pin(program.run()));
    }
}

/// Task of a client that uses some of the locks. In some plans, other tasks of
/// the same client use the same locks and compete with it like other sessions.
struct Program {
    number: Arc<AtomicU32>,
    client: Client,
    rng: Rng,
    locks: Vec<u32>,
    short_waits: u64,
    cancels: u64,
    lease: Duration,
    max_lease: Duration,
    observed: bool,
}

impl Program {
    async fn run(mut self) {
        loop {
            let pause = *self.rng.pick(&[1, 100, 1000, 10_000]);
            sleep(self.rng.length(0..pause + 1)).await;
            if self.rng.permille(20) {
                // The client's other task may still hold a lock.
                count("sessions closed");
                self.number.store(sim().close_session(self.number.load(Relaxed)), Relaxed);
                self.client.close().await;
                continue;
            }
            let (client, lock) = (self.number.load(Relaxed), *self.rng.pick(&self.locks));
            let campaigns = self.rng.permille(if self.observed { 700 } else { 200 });
            let (ticket, value) = sim().acquire(client, lock, campaigns);
            // Some acquires time out during the first storage call, or even
            // before the session is open.
            let short_waits = self.rng.permille(self.short_waits);
            let canceled = match self.rng.permille(self.cancels) {
                true => {
                    let max = *self.rng.pick(&[20, 100, 1_000, 10_000]);
                    sleep(self.rng.length(1..max))
                }
                false => sleep(Duration::MAX),
            };
            let outcome = tokio::select! {
                biased;
                outcome = self.acquire(client, lock, ticket, value.as_deref(), short_waits) => outcome,
                () = canceled => {
                    count("acquires canceled");
                    if let Some(op) = sim().take_answered(client, ticket) {
                        let why = "canceled by its client".to_owned();
                        record(Event::Refused { op, why, faulty: false, canceled: true });
                    }
                    continue;
                }
            };
            match outcome {
                Ok(held) => {
                    if self.record_grant(client, lock, ticket, value.as_deref(), held.token()) {
                        self.hold(held, client, lock).await;
                    }
                }
                Err(error) => {
                    count(refusal_name(&error));
                    if let Some(op) = sim().take_answered(client, ticket) {
                        let own = short_waits || sim().is_unserved(client);
                        let faulty = is_faulty(&error) && !own;
                        let why = refusal_name(&error).to_owned();
                        record(Event::Refused { op, why, faulty, canceled: false });
                    }
                    // Delay before the next attempt, because a refusal can be
                    // immediate.
                    sleep(self.rng.length(200..1000)).await;
                }
            }
        }
    }

    /// Records a grant. Returns false if the session was closed in the
    /// meantime: the grant is then lost.
    fn record_grant(
        &self,
        client: u32,
        lock: u32,
        ticket: u64,
        value: Option<&str>,
        token: u64,
    ) -> bool {
        let sim = sim();
        let op = sim.take_answered(client, ticket);
        if client != self.number.load(Relaxed) {
            if let Some(op) = op {
                let why = "closed its session".to_owned();
                record(Event::Refused { op, why, faulty: false, canceled: true });
            }
            return false;
        }
        let op = op.unwrap_or_else(|| sim.record_late_acquire(client, lock, value));
        record(Event::Granted { op, token });
        true
    }

    async fn acquire(
        &mut self,
        client: u32,
        lock: u32,
        ticket: u64,
        value: Option<&str>,
        short_waits: bool,
    ) -> Result<Held, Error> {
        let queued = move |progress: leasehold_client::Progress| {
            if progress.position > 0 {
                sim().record_queued(client, ticket);
            }
        };
        let other = Duration::from_secs(*self.rng.pick(&[15, 20, 30, 60]));
        let other = other.min(self.max_lease);
        let duration = if self.rng.permille(300) { other } else { self.lease };
        let wait = self.rng.length(if short_waits { 5..50 } else { 1000..60_000 });
        let wait_mode = self.rng.within(0..10);
        if let Some(value) = value {
            let election = self.client.election(lock_name(lock)).on_progress(queued);
            let election = election.lease_duration(duration);
            let election = match wait_mode {
                0 => election.no_wait(),
                _ if short_waits => election.wait(wait),
                1..=4 => election.wait(wait),
                _ => election,
            };
            return election.campaign(value).await.map(Held::Lead);
        }
        let request = self.client.lock(lock_name(lock)).on_progress(queued);
        let request = request.lease_duration(duration);
        let request = match wait_mode {
            0 => request.no_wait(),
            _ if short_waits => request.wait(wait),
            1..=4 => request.wait(wait),
            _ => request,
        };
        request.acquire().await.map(Held::Lock)
    }

    /// Holds the grant for a while, checks it at random intervals, and releases
    /// it.
    async fn hold(&mut self, held: Held, client: u32, lock: u32) {
        let token = held.token();
        let held = Arc::new(held);
        let machine = {
            let hold = Hold { lock, token, until: None, lost: false, guard: Arc::downgrade(&held) };
            let sim = sim();
            let machine = {
                let process = &mut sim.clients.borrow_mut()[client as usize];
                process.holds.push(hold);
                process.machine
            };
            // Record the validity before the client acts on it.
            sim.inspect_machine(machine);
            machine
        };
        let lease = self.lease.as_millis() as u64;
        let max_hold = *self.rng.pick(&[10, 500, 5000, lease, 3 * lease]);
        let until = Moment::now() + self.rng.length(0..max_hold + 1);
        let (watches_loss, heeds_warning) = (self.rng.permille(300), self.rng.permille(500));
        loop {
            let next_check = sleep(self.rng.length(1..1500).min(until.remaining()));
            let since = sim().world.now();
            let (notified, warned) = tokio::select! {
                biased;
                _ = held.lost(), if watches_loss => (true, false),
                () = held.at_risk(), if watches_loss => (false, true),
                () = next_check => (false, false),
            };
            // A loss before this wait is reported immediately.
            let waited = sim().world.now() > since;
            if notified && waited && sim().world.ran_evenly(machine, MIN_EVEN_RUN) {
                count("grants lost: notified");
                record(Event::LossNotified { client, lock, token });
            }
            if !held.is_valid() {
                count("grants lost");
                record(Event::Lost { client, lock, token });
                if held.lost().await.reason == Reason::Unknown
                    && sim().is_granted(client, lock, token)
                {
                    record(Event::StillGranted { client, lock, token });
                }
                if self.rng.permille(500) {
                    // The client stopped, but has not released yet.
                    sleep(self.rng.length(0..20_000)).await;
                }
                // A closed session has already released all its grants.
                if client == self.number.load(Relaxed) {
                    let op = sim().next_op();
                    record(Event::Release { op, client, lock, token });
                }
                return;
            }
            // A delay between the check and the write.
            if self.rng.permille(100) {
                sleep(self.rng.length(0..3000)).await;
            }
            let accepted = sim().use_resource(lock, token);
            record(Event::Used { client, lock, token, fenced: true, accepted });
            if let Held::Lead(lead) = &*held
                && self.rng.permille(200)
            {
                self.proclaim(lead, client, lock).await;
            }
            if until.has_passed() || (warned && heeds_warning) {
                break;
            }
        }
        let op = sim().next_op();
        record(Event::Release { op, client, lock, token });
        let Some(held) = Arc::into_inner(held) else { return };
        if self.rng.permille(300) {
            // Released in the background.
            drop(held);
        } else if held.release().await.is_ok() {
            record(Event::Released { op });
        }
    }
}

impl Program {
    /// Publishes another value. Sometimes an observer reads it immediately.
    async fn proclaim(&mut self, lead: &Leadership, client: u32, lock: u32) {
        let (op, token) = (sim().next_op(), lead.token().into());
        let value = format!("proclaim {op}");
        record(Event::Proclaim { op, client, lock, token, value: value.clone() });
        if lead.proclaim(value).await.is_ok() {
            count("proclaims");
            record(Event::Proclaimed { op });
        } else {
            count("proclaims: failed");
            record(Event::NotProclaimed { op });
        }
        if self.observed && self.rng.permille(500) {
            let place = self.rng.index(sim().plan.places);
            sim().world.after(0, move || observer::read_at(place, lock));
        }
    }
}

/// Returns whether the service failed to serve the request, for a reason other
/// than the client or another holder.
const fn is_faulty(error: &Error) -> bool {
    !matches!(error, Error::NotGranted { .. })
}

const fn refusal_name(error: &Error) -> &'static str {
    match error {
        Error::NotGranted { .. } => "acquires refused: held by another",
        Error::Unavailable { .. } => "acquires refused: unavailable",
        Error::Lost { .. } => "acquires refused: lost",
        Error::Invalid { .. } => "acquires refused: invalid",
        Error::NeedsOperator { .. } => "acquires refused: frozen",
        _ => "acquires refused: other reason",
    }
}

//! Clients: programs that use the product's own client library, as users' do.

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
    link::Way,
    observer,
    plan::Plan,
    rng::Rng,
    sim_state::{Hold, count, lock_name, record, sim},
    world::{Nanos, SECOND},
};

/// For so long a machine must have run evenly: timers that it slept through are
/// late by less.
const EVENLY: Nanos = 2 * SECOND;

/// What a client holds.
pub enum Held {
    /// A lock.
    Lock(Guard),
    /// An election's lead.
    Lead(Leadership),
}

impl Held {
    /// Until when it may be counted on and whether it stands, without looking
    /// after it.
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
/// If the library does not take the plan's settings.
#[allow(clippy::expect_used, reason = "a mistake in the simulation itself")]
pub fn start(place: usize) {
    let sim = sim();
    let mut rng = sim.rng.borrow_mut().split();
    let clocks = sim.plan.clocks(sim.world.now(), &mut rng);
    let machine = sim.world.add_machine(clocks, rng.split());
    let number = sim.enrol(machine, place);
    let fenced = sim.plan.fenced && number.is_multiple_of(2);
    let builder = Client::builder("http://daemon")
        .ttl(sim.plan.ttl)
        .client_name(format!("client {number}"))
        .fenced(fenced);
    let number = Arc::new(AtomicU32::new(number));
    let client = sim.world.as_machine(machine, || {
        let link = Arc::new(Way { client: Arc::clone(&number), place, fenced });
        let connected = simulation::connect(Route::Link(link), builder.connect());
        connected.expect("it does no I/O").expect("the settings are acceptable")
    });
    let Plan { locks, hands, hasty, cancels, rivals, lease, longest_lease, observed, .. } =
        sim.plan;
    let hands = if rivals { hands.max(2) } else { hands };
    for hand in 0..hands {
        let (number, client, rng) = (Arc::clone(&number), client.clone(), rng.split());
        let locks: Vec<_> = (0..locks).filter(|lock| rivals || lock % hands == hand).collect();
        if locks.is_empty() {
            continue;
        }
        let program =
            Program { number, client, rng, locks, hasty, cancels, lease, longest_lease, observed };
        sim.world.spawn(machine, Box::pin(program.run()));
    }
}

/// What a task of a client does with some of the locks. In some plans, other tasks of the
/// same client want the same locks, and compete with it like any other session.
struct Program {
    number: Arc<AtomicU32>,
    client: Client,
    rng: Rng,
    locks: Vec<u32>,
    hasty: u64,
    cancels: u64,
    lease: Duration,
    longest_lease: Duration,
    observed: bool,
}

impl Program {
    async fn run(mut self) {
        loop {
            let pause = *self.rng.pick(&[1, 100, 1000, 10_000]);
            sleep(self.rng.length(0..pause + 1)).await;
            if self.rng.permille(20) {
                // The other hand may still hold something.
                count("sessions closed");
                self.number.store(sim().closes(self.number.load(Relaxed)), Relaxed);
                self.client.close().await;
                continue;
            }
            let (client, lock) = (self.number.load(Relaxed), *self.rng.pick(&self.locks));
            let campaigns = self.rng.permille(if self.observed { 700 } else { 200 });
            let (ticket, value) = sim().acquire(client, lock, campaigns);
            // Some give up while the storage is being asked for the first time, or even
            // before there is a session.
            let hasty = self.rng.permille(self.hasty);
            let canceled = match self.rng.permille(self.cancels) {
                true => {
                    let most = *self.rng.pick(&[20, 100, 1_000, 10_000]);
                    sleep(self.rng.length(1..most))
                }
                false => sleep(Duration::MAX),
            };
            let outcome = tokio::select! {
                biased;
                outcome = self.acquire(client, lock, ticket, value.as_deref(), hasty) => outcome,
                () = canceled => {
                    count("acquires canceled");
                    if let Some(op) = sim().answered(client, ticket) {
                        let why = "canceled by its client".to_owned();
                        record(Event::Refused { op, why, faulty: false, canceled: true });
                    }
                    continue;
                }
            };
            match outcome {
                Ok(held) => {
                    if self.granted(client, lock, ticket, value.as_deref(), held.token()) {
                        self.hold(held, client, lock).await;
                    }
                }
                Err(error) => {
                    count(refusal(&error));
                    if let Some(op) = sim().answered(client, ticket) {
                        let own = hasty || sim().is_given_up(client);
                        let faulty = is_faulty(&error) && !own;
                        let why = refusal(&error).to_owned();
                        record(Event::Refused { op, why, faulty, canceled: false });
                    }
                    // Whoever is refused at once must not ask at once again.
                    sleep(self.rng.length(200..1000)).await;
                }
            }
        }
    }

    /// Whether it is of use: a session that was closed meanwhile has lost it.
    fn granted(
        &self,
        client: u32,
        lock: u32,
        ticket: u64,
        value: Option<&str>,
        token: u64,
    ) -> bool {
        let sim = sim();
        let op = sim.answered(client, ticket);
        if client != self.number.load(Relaxed) {
            if let Some(op) = op {
                let why = "closed its session".to_owned();
                record(Event::Refused { op, why, faulty: false, canceled: true });
            }
            return false;
        }
        let op = op.unwrap_or_else(|| sim.ask_late(client, lock, value));
        record(Event::Granted { op, token });
        true
    }

    async fn acquire(
        &mut self,
        client: u32,
        lock: u32,
        ticket: u64,
        value: Option<&str>,
        hasty: bool,
    ) -> Result<Held, Error> {
        let queued = move |progress: leasehold_client::Progress| {
            if progress.position > 0 {
                sim().queued(client, ticket);
            }
        };
        let other = Duration::from_secs(*self.rng.pick(&[15, 20, 30, 60]));
        let other = other.min(self.longest_lease);
        let duration = if self.rng.permille(300) { other } else { self.lease };
        let wait = self.rng.length(if hasty { 5..50 } else { 1000..60_000 });
        let patience = self.rng.within(0..10);
        if let Some(value) = value {
            let election = self.client.election(lock_name(lock)).on_progress(queued);
            let election = election.lease_duration(duration);
            let election = match patience {
                0 => election.no_wait(),
                _ if hasty => election.wait(wait),
                1..=4 => election.wait(wait),
                _ => election,
            };
            return election.campaign(value).await.map(Held::Lead);
        }
        let request = self.client.lock(lock_name(lock)).on_progress(queued);
        let request = request.lease_duration(duration);
        let request = match patience {
            0 => request.no_wait(),
            _ if hasty => request.wait(wait),
            1..=4 => request.wait(wait),
            _ => request,
        };
        request.acquire().await.map(Held::Lock)
    }

    /// Holds it for a while, looks after it more or less well, and lets go.
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
            // What it was promised comes before what it makes of it.
            sim.look_at(machine);
            machine
        };
        let lease = self.lease.as_millis() as u64;
        let longest = *self.rng.pick(&[10, 500, 5000, lease, 3 * lease]);
        let until = Moment::now() + self.rng.length(0..longest + 1);
        let (attentive, obliging) = (self.rng.permille(300), self.rng.permille(500));
        loop {
            let turn = sleep(self.rng.length(1..1500).min(until.remaining()));
            let since = sim().world.now();
            let (told, warned) = tokio::select! {
                biased;
                _ = held.lost(), if attentive => (true, false),
                () = held.at_risk(), if attentive => (false, true),
                () = turn => (false, false),
            };
            // What was lost before is told at once.
            let waited = sim().world.now() > since;
            if told && waited && sim().world.ran_evenly(machine, EVENLY) {
                count("grants lost: told of");
                record(Event::Told { client, lock, token });
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
                    // It stopped, but has not let go yet.
                    sleep(self.rng.length(0..20_000)).await;
                }
                // A session that was closed meanwhile has let go of everything.
                if client == self.number.load(Relaxed) {
                    let op = sim().next_op();
                    record(Event::Release { op, client, lock, token });
                }
                return;
            }
            // Something may come between the look and the act.
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
            if until.has_passed() || (warned && obliging) {
                break;
            }
        }
        let op = sim().next_op();
        record(Event::Release { op, client, lock, token });
        let Some(held) = Arc::into_inner(held) else { return };
        if self.rng.permille(300) {
            // Given back in the background.
            drop(held);
        } else if held.release().await.is_ok() {
            record(Event::Released { op });
        }
    }
}

impl Program {
    /// Publishes another value. Now and then somebody looks at once whether it can be seen.
    async fn proclaim(&mut self, lead: &Leadership, client: u32, lock: u32) {
        let (op, token) = (sim().next_op(), lead.token().into());
        let value = format!("proclaim {op}");
        record(Event::Proclaim { op, client, lock, token, value: value.clone() });
        if lead.proclaim(value).await.is_ok() {
            count("proclaims");
            record(Event::Proclaimed { op });
        } else {
            count("proclaims in vain");
            record(Event::NotProclaimed { op });
        }
        if self.observed && self.rng.permille(500) {
            let place = self.rng.index(sim().plan.places);
            sim().world.after(0, move || observer::read_at(place, lock));
        }
    }
}

/// Whether the service could not serve it: neither the client's doing nor that of
/// another holder.
const fn is_faulty(error: &Error) -> bool {
    !matches!(error, Error::NotGranted { .. })
}

const fn refusal(error: &Error) -> &'static str {
    match error {
        Error::NotGranted { .. } => "acquires refused: held by another",
        Error::Unavailable { .. } => "acquires refused: unavailable",
        Error::Lost { .. } => "acquires refused: lost",
        Error::Invalid { .. } => "acquires refused: invalid",
        Error::NeedsOperator { .. } => "acquires refused: frozen",
        _ => "acquires refused: otherwise",
    }
}

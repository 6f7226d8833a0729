//! Clients: programs that use the product's own client library, as users' do.

use std::{sync::Arc, time::Duration};

use leasehold::clock::sleep;
use leasehold_check::Event;
use leasehold_client::{Client, Error, Guard, Leadership, clock::Moment, simulation};

use crate::{
    dice::Dice,
    link::Way,
    plan::Plan,
    scene::{Hold, Process, count, lock_name, record, scene},
};

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
            Self::Lock(guard) => guard.token(),
            Self::Lead(lead) => lead.token(),
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
    let scene = scene();
    let mut dice = scene.dice.borrow_mut().split();
    let clocks = scene.plan.clocks(scene.world.now(), &mut dice);
    let machine = scene.world.add_machine(clocks, dice.split());
    let number = {
        let mut clients = scene.clients.borrow_mut();
        clients.push(Process { machine, place, holds: Vec::new(), pending: None });
        clients.len() as u32 - 1
    };
    if scene.plan.bad_clocks {
        record(Event::ClockBroken { client: number });
    }
    let builder = Client::builder("http://daemon")
        .ttl(scene.plan.ttl)
        .client_name(format!("client {number}"))
        .fenced(false);
    let program = scene.world.as_machine(machine, || {
        let link = Arc::new(Way { client: number, place });
        let client = simulation::client(builder, link).expect("the settings are acceptable");
        let Plan { locks, lease, longest_lease, .. } = scene.plan;
        Program { number, client, dice, locks, lease, longest_lease }
    });
    scene.world.spawn(machine, Box::pin(program.run()));
}

struct Program {
    number: u32,
    client: Client,
    dice: Dice,
    locks: u32,
    lease: Duration,
    longest_lease: Duration,
}

impl Program {
    async fn run(mut self) {
        loop {
            let pause = *self.dice.pick(&[1, 100, 1000, 10_000]);
            sleep(self.dice.length(0..pause + 1)).await;
            let lock = self.dice.within(0..u64::from(self.locks)) as u32;
            scene().acquire(self.number, lock);
            match self.acquire(lock).await {
                Ok(held) => {
                    let op = scene().answered(self.number);
                    record(Event::Granted { op, token: held.token() });
                    self.hold(held, lock).await;
                }
                Err(error) => {
                    count(refusal(&error));
                    let (op, why) = (scene().answered(self.number), refusal(&error).to_owned());
                    record(Event::Refused { op, why, faulty: false });
                    // Whoever is refused at once must not ask at once again.
                    sleep(self.dice.length(200..1000)).await;
                }
            }
        }
    }

    async fn acquire(&mut self, lock: u32) -> Result<Held, Error> {
        let client = self.number;
        let queued = move |progress: leasehold_client::Progress| {
            if progress.position > 0 {
                scene().queued(client);
            }
        };
        let other = Duration::from_secs(*self.dice.pick(&[15, 20, 30, 60]));
        let other = other.min(self.longest_lease);
        let duration = if self.dice.permille(300) { other } else { self.lease };
        let wait = self.dice.length(1000..60_000);
        let patience = self.dice.within(0..10);
        if self.dice.permille(200) {
            let election = self.client.election(lock_name(lock)).on_progress(queued);
            let election = election.lease_duration(duration);
            let election = match patience {
                0 => election.no_wait(),
                1..=4 => election.wait(wait),
                _ => election,
            };
            return election.campaign(format!("client {}", self.number)).await.map(Held::Lead);
        }
        let request = self.client.lock(lock_name(lock)).on_progress(queued);
        let request = request.lease_duration(duration);
        let request = match patience {
            0 => request.no_wait(),
            1..=4 => request.wait(wait),
            _ => request,
        };
        request.acquire().await.map(Held::Lock)
    }

    /// Holds it for a while, looks after it more or less well, and lets go.
    async fn hold(&mut self, held: Held, lock: u32) {
        let (client, token) = (self.number, held.token());
        let held = Arc::new(held);
        {
            let hold = Hold { lock, token, until: 0, lost: false, guard: Arc::downgrade(&held) };
            scene().clients.borrow_mut()[client as usize].holds.push(hold);
        }
        let lease = self.lease.as_millis() as u64;
        let longest = *self.dice.pick(&[10, 500, 5000, lease, 3 * lease]);
        let until = Moment::now() + self.dice.length(0..longest + 1);
        loop {
            let turn = self.dice.length(1..1500);
            sleep(turn.min(until.remaining())).await;
            if !held.is_valid() {
                count("grants lost");
                record(Event::Lost { client, lock, token });
                if self.dice.permille(500) {
                    // It stopped, but has not let go yet.
                    sleep(self.dice.length(0..20_000)).await;
                }
                return;
            }
            // Something may come between the look and the act.
            if self.dice.permille(100) {
                sleep(self.dice.length(0..3000)).await;
            }
            let accepted = scene().use_resource(lock, token);
            record(Event::Used { client, lock, token, fenced: true, accepted });
            if let Held::Lead(lead) = &*held
                && self.dice.permille(200)
            {
                let proclaimed = lead.proclaim(format!("{token}")).await;
                count(if proclaimed.is_ok() { "proclaims" } else { "proclaims in vain" });
            }
            if until.has_passed() {
                break;
            }
        }
        let op = scene().next_op();
        record(Event::Release { op, client, lock, token });
        let Some(held) = Arc::into_inner(held) else { return };
        if self.dice.permille(300) {
            // Given back in the background.
            drop(held);
        } else if held.release().await.is_ok() {
            record(Event::Released { op });
        }
    }
}

const fn refusal(error: &Error) -> &'static str {
    match error {
        Error::NotGranted { .. } => "acquires refused: held by another",
        Error::Unavailable { .. } => "acquires refused: unavailable",
        Error::Lost { .. } => "acquires refused: lost",
        Error::Invalid { .. } => "acquires refused: invalid",
        _ => "acquires refused: otherwise",
    }
}

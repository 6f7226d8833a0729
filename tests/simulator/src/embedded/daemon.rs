//! Daemons on the embedded store.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use leasehold::{driver::Driver, telemetry::Telemetry};
use leasehold_checker::Event;
use leasehold_core::{lock, session};
use leasehold_embedded_store::Embedded;
use leasehold_runtime as task;
use leasehold_runtime::sleep;
use leasehold_store::LeaseStore as _;
use leasehold_time::Entropy;

use super::mutants;
use crate::{
    clock::Clocks,
    sim_state::{Running, SimState, count, record, sim},
    world::{MILLISECOND, Nanos, SECOND},
};

/// Delay of the supervisor after a failed start.
const RESTART_DELAY: Nanos = SECOND;

/// State of the daemons on the embedded store.
#[derive(Default)]
pub struct Daemons {
    /// By number. Kept by the simulation, so that a stop can close them.
    stores: RefCell<BTreeMap<u32, Embedded>>,
    /// All of them run on one machine.
    clocks: RefCell<Option<Clocks>>,
}

impl Daemons {
    /// Drops everything that refers to the world.
    pub fn clear(&self) {
        self.stores.borrow_mut().clear();
    }
}

/// Returns the store of a daemon.
#[must_use]
pub fn store(daemon: u32) -> Option<Embedded> {
    sim().embedded.stores.borrow().get(&daemon).cloned()
}

/// Starts the daemon. If the directory can't be used, another start follows.
pub fn start(place: usize) {
    let sim = sim();
    let Some(plan) = &sim.plan.embedded else { return };
    let number = sim.next_daemon();
    let mut rng = sim.rng.borrow_mut().split();
    let mut clocks = sim.embedded.clocks.borrow_mut().get_or_insert_with(|| clocks(&sim)).clone();
    if plan.clock_is_set && rng.permille(500) {
        let by = rng.within(0..40 * SECOND) as i64 - (20 * SECOND) as i64;
        clocks.set_wall(by, sim.world.now());
    }
    let machine = sim.world.add_machine(clocks, rng.split());
    let directory = sim.disk.borrow_mut().open(number, machine);
    let Some(directory) = directory else { return start_later(place) };
    // From here on, the checker expects reservations.
    record(Event::Reserved { daemon: number, last: 0 });
    let opened = sim.world.as_machine(machine, || {
        let forgotten = sim.disk.borrow().forgotten_until;
        if let Some(until) = forgotten {
            record_forgotten(until);
        }
        Embedded::open_in(mutants::wrap(directory), plan.reservation)
    });
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            count("daemon: could not open its directory");
            sim.trace(|| format!("    {error}"));
            sim.disk.borrow_mut().is_unusable = true;
            sim.world.crash(machine);
            return start_later(place);
        }
    };
    {
        let mut disk = sim.disk.borrow_mut();
        (disk.forgotten_until, disk.is_unusable) = (None, false);
    }
    sim.embedded.stores.borrow_mut().insert(number, store.clone());
    let sessions = session::Settings {
        default_ttl: sim.plan.ttl,
        max_ttl: Duration::from_secs(60),
        max_sessions: 100,
        max_locks_per_session: 100,
    };
    let locks = lock::Settings {
        lease_duration: sim.plan.lease,
        linger: sim.plan.linger,
        poll_interval: sim.plan.poll,
        max_locks: 100,
        max_waiters_per_lock: 100,
        journal: leasehold_core::journal::Level::Off,
    };
    let driver = sim.world.as_machine(machine, || {
        let driver = Driver::new(
            sessions,
            locks,
            Arc::new(store),
            Entropy::seeded(rng.bits()),
            Telemetry::default(),
        );
        task::spawn(driver.clone().keep_time());
        driver
    });
    let mut places = sim.places.borrow_mut();
    (places[place].latest, places[place].stopping) = (number, false);
    places[place].since = sim.world.now();
    places[place].daemon = Some(Running { number, machine, driver });
}

fn start_later(place: usize) {
    sim().world.after(RESTART_DELAY, move || crate::daemon::start(place));
}

/// Returns the clocks of the machine, without faults.
fn clocks(sim: &SimState) -> Clocks {
    sim.plan.clocks(0, &mut sim.rng.borrow_mut())
}

/// Records that a starting process has no record of holds that may still exist.
fn record_forgotten(until: Nanos) {
    let wall =
        leasehold_time::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let upto = (wall.as_nanos() * (1 << 20) / 1_000_000_000) as u64;
    record(Event::Forgotten { upto, until });
}

/// Starts another daemon at the path while the first one is running. The
/// directory of the first one is therefore moved away.
pub fn supersede(index: usize, place: usize, how: Supersede) {
    let sim = sim();
    let Some(Running { number, machine, driver }) = sim.running(place) else { return };
    if sim.places.borrow()[place].stopping {
        return;
    }
    let drain = sim.plan.drain;
    let mut until = sim.world.now() + (drain + 2 * sim.plan.ttl).as_nanos() as Nanos;
    match how {
        Supersede::Stop { kill_after, down } => {
            count("daemon: superseded while it stops");
            _ = sim.refuse_waiters(place);
            until += kill_after + down;
            sim.world.as_machine(machine, || {
                task::spawn(async move {
                    driver.drain(drain).await;
                    if let Some(store) = store(number) {
                        _ = store.close().await;
                    }
                    driver.end_streams();
                    sleep(Duration::from_millis(300)).await;
                    let world = Rc::clone(&crate::sim_state::sim().world);
                    world.after(0, move || crate::sim_state::sim().world.crash(machine));
                    world.after(kill_after, move || crate::daemon::crash(place, Some(down)));
                });
            });
        }
        Supersede::Run { length } => {
            count("daemon: superseded while it runs");
            until += length;
            sim.world.after(length, move || {
                record(Event::DaemonDied { daemon: number });
                crate::sim_state::sim().world.crash(machine);
            });
        }
    }
    until += 5 * SECOND;
    crate::faults::disturb(index, until - sim.world.now() + sim.plan.crash_wait(), || {});
    sim.disk.borrow_mut().remove(until);
    sim.places.borrow_mut()[place].daemon = None;
    // Grants in flight arrive before the second daemon starts.
    sim.world.after(30 * MILLISECOND, move || {
        crate::daemon::start(place);
        let sim = crate::sim_state::sim();
        for connection in sim.connections.borrow().iter().filter(|known| known.client % 2 == 0) {
            connection.up.reset();
            connection.down.reset();
        }
    });
}

/// Fate of the first daemon while a second one uses its path.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names describe the fields")]
pub enum Supersede {
    /// The daemon shuts down. The second one is killed `kill_after` the
    /// shutdown completes, and started again.
    Stop { kill_after: Nanos, down: Nanos },
    /// The daemon keeps running, and is killed after `length`. Half of its
    /// clients connect to the second one.
    Run { length: Nanos },
}

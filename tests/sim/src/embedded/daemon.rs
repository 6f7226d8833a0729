//! Daemons on the embedded store.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use leasehold::{clock::Entropy, driver::Driver, lease::embedded::Embedded, lock, session, task};
use leasehold_check::Event;

use super::mutants;
use crate::{
    clock::Clocks,
    scene::{Running, Scene, count, record, scene},
    world::{Nanos, SECOND},
};

/// How long a supervisor waits after a start that failed.
const RESTART_DELAY: Nanos = SECOND;

/// What is known of daemons on the embedded store.
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

/// The store of a daemon.
#[must_use]
pub fn store(daemon: u32) -> Option<Embedded> {
    scene().embedded.stores.borrow().get(&daemon).cloned()
}

/// Starts the daemon. If the directory can't be used, another start follows.
pub fn start(place: usize) {
    let scene = scene();
    let Some(plan) = &scene.plan.embedded else { return };
    let number = scene.next_daemon();
    let mut dice = scene.dice.borrow_mut().split();
    let clocks = scene.embedded.clocks.borrow_mut().get_or_insert_with(|| clocks(&scene)).clone();
    let machine = scene.world.add_machine(clocks, dice.split());
    let directory = scene.disk.borrow_mut().open(number, machine);
    let Some(directory) = directory else { return start_later(place) };
    let opened = scene.world.as_machine(machine, || {
        if scene.disk.borrow().forgetful {
            forgets(&scene);
        }
        Embedded::open_in(mutants::wrap(directory), plan.reservation)
    });
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            count("daemon: could not open its directory");
            scene.trace(|| format!("    {error}"));
            scene.world.crash(machine);
            return start_later(place);
        }
    };
    scene.disk.borrow_mut().forgetful = false;
    scene.embedded.stores.borrow_mut().insert(number, store.clone());
    let sessions = session::Settings {
        default_ttl: scene.plan.ttl,
        longest_ttl: Duration::from_secs(60),
        max_sessions: 100,
        max_locks_per_session: 100,
    };
    let locks = lock::Settings {
        lease_duration: scene.plan.lease,
        linger: scene.plan.linger,
        poll_interval: scene.plan.poll,
        max_locks: 100,
        max_waiters_per_lock: 100,
    };
    let driver = scene.world.as_machine(machine, || {
        let driver = Driver::new(sessions, locks, Arc::new(store), Entropy::seeded(dice.bits()));
        task::spawn(driver.clone().keep_time());
        driver
    });
    let mut places = scene.places.borrow_mut();
    (places[place].latest, places[place].stopping) = (number, false);
    places[place].since = scene.world.now();
    places[place].daemon = Some(Running { number, machine, driver });
}

fn start_later(place: usize) {
    scene().world.after(RESTART_DELAY, move || crate::daemon::start(place));
}

/// The clocks of the machine, as they are whenever a process starts: so a wall
/// clock that was set is right again after the next start.
fn clocks(scene: &Scene) -> Clocks {
    scene.plan.clocks(0, &mut scene.dice.borrow_mut())
}

/// The process that starts now does not know of holds that there may be.
fn forgets(scene: &Scene) {
    let wall = leasehold::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let upto = (wall.as_nanos() * (1 << 20) / 1_000_000_000) as u64;
    let longest = scene.plan.drain + 2 * scene.plan.ttl;
    let until = scene.world.now() + longest.as_nanos() as Nanos + 5 * SECOND;
    record(Event::Forgotten { upto, until });
}

/// The daemon is told to stop, and another is started at the same path while
/// it still drains: so its directory must not be there any more. The second one
/// is killed when the first has stopped, and started again.
pub fn supersede(index: usize, place: usize, kill_after: Nanos, down: Nanos) {
    let scene = scene();
    let Some(Running { number, machine, driver }) = scene.running(place) else { return };
    if scene.places.borrow()[place].stopping {
        return;
    }
    count("daemon: superseded");
    let unclear = scene.stops(place);
    let longest = (scene.plan.drain + 3 * scene.plan.ttl).as_nanos() as Nanos;
    crate::faults::disturb(index, longest + kill_after + down + 10 * SECOND, || {});
    scene.trace(|| format!("    superseded, unclear: {unclear}"));
    let drain = scene.plan.drain;
    scene.world.as_machine(machine, || {
        task::spawn(async move {
            driver.drain(drain).await;
            if let Some(store) = store(number) {
                _ = leasehold::lease::LeaseStore::close(&store).await;
            }
            driver.end_streams();
            leasehold::clock::sleep(Duration::from_millis(300)).await;
            let scene = crate::scene::scene();
            scene.world.after(0, move || crate::scene::scene().world.crash(machine));
            scene.world.after(kill_after, move || crate::daemon::crash(place, Some(down)));
        });
    });
    scene.places.borrow_mut()[place].daemon = None;
    scene.world.after(30 * SECOND / 1000, move || crate::daemon::start(place));
}

//! Daemons on the embedded store.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use leasehold::{
    clock::{Entropy, sleep},
    driver::Driver,
    lease::{LeaseStore as _, embedded::Embedded},
    lock, session, task,
};
use leasehold_checker::Event;

use super::mutants;
use crate::{
    clock::Clocks,
    scene::{Running, Scene, count, record, scene},
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
    let mut clocks =
        scene.embedded.clocks.borrow_mut().get_or_insert_with(|| clocks(&scene)).clone();
    if plan.clock_is_set && dice.permille(500) {
        let by = dice.within(0..40 * SECOND) as i64 - (20 * SECOND) as i64;
        clocks.set_wall(by, scene.world.now());
    }
    let machine = scene.world.add_machine(clocks, dice.split());
    let directory = scene.disk.borrow_mut().open(number, machine);
    let Some(directory) = directory else { return start_later(place) };
    // From here on, the checker expects reservations.
    record(Event::Reserved { daemon: number, last: 0 });
    let opened = scene.world.as_machine(machine, || {
        let forgotten = scene.disk.borrow().forgotten_until;
        if let Some(until) = forgotten {
            forgets(until);
        }
        Embedded::open_in(mutants::wrap(directory), plan.reservation)
    });
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            count("daemon: could not open its directory");
            scene.trace(|| format!("    {error}"));
            scene.disk.borrow_mut().is_unusable = true;
            scene.world.crash(machine);
            return start_later(place);
        }
    };
    {
        let mut disk = scene.disk.borrow_mut();
        (disk.forgotten_until, disk.is_unusable) = (None, false);
    }
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

/// The clocks of the machine while nothing is wrong with them.
fn clocks(scene: &Scene) -> Clocks {
    scene.plan.clocks(0, &mut scene.dice.borrow_mut())
}

/// The process that starts now does not know of holds that there may be.
fn forgets(until: Nanos) {
    let wall = leasehold::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let upto = (wall.as_nanos() * (1 << 20) / 1_000_000_000) as u64;
    record(Event::Forgotten { upto, until });
}

/// Another daemon is started at the path while the first one still runs: so its
/// directory must not be there any more.
pub fn supersede(index: usize, place: usize, how: Supersede) {
    let scene = scene();
    let Some(Running { number, machine, driver }) = scene.running(place) else { return };
    if scene.places.borrow()[place].stopping {
        return;
    }
    let drain = scene.plan.drain;
    let mut until = scene.world.now() + (drain + 2 * scene.plan.ttl).as_nanos() as Nanos;
    match how {
        Supersede::Stop { kill_after, down } => {
            count("daemon: superseded while it stops");
            _ = scene.stops(place);
            until += kill_after + down;
            scene.world.as_machine(machine, || {
                task::spawn(async move {
                    driver.drain(drain).await;
                    if let Some(store) = store(number) {
                        _ = store.close().await;
                    }
                    driver.end_streams();
                    sleep(Duration::from_millis(300)).await;
                    let world = Rc::clone(&crate::scene::scene().world);
                    world.after(0, move || crate::scene::scene().world.crash(machine));
                    world.after(kill_after, move || crate::daemon::crash(place, Some(down)));
                });
            });
        }
        Supersede::Run { length } => {
            count("daemon: superseded while it runs");
            until += length;
            scene.world.after(length, move || {
                record(Event::DaemonDied { daemon: number });
                crate::scene::scene().world.crash(machine);
            });
        }
    }
    until += 5 * SECOND;
    crate::faults::disturb(index, until - scene.world.now() + scene.plan.crash_wait(), || {});
    scene.disk.borrow_mut().remove(until);
    scene.places.borrow_mut()[place].daemon = None;
    // Grants in flight arrive before the second daemon starts.
    scene.world.after(30 * MILLISECOND, move || {
        crate::daemon::start(place);
        let scene = crate::scene::scene();
        for connection in scene.connections.borrow().iter().filter(|known| known.client % 2 == 0) {
            connection.up.reset();
            connection.down.reset();
        }
    });
}

/// Fate of a daemon while a second one has its path.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Supersede {
    /// It is told to stop. The other one is killed when it has, and started again.
    Stop { kill_after: Nanos, down: Nanos },
    /// It keeps running, and is killed after `length`. Half of its clients connect
    /// to the second one.
    Run { length: Nanos },
}

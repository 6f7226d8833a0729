//! Daemons: the product's own, from the session stream to the storage client.

use std::sync::Arc;

use leasehold::{
    clock::Entropy,
    config::{self, SecretText},
    driver::Driver,
    lease::azure::{Azure, account::Account},
    lock, session, task,
};
use leasehold_check::Event;

use crate::{
    scarce::Scarce,
    scene::{Running, count, record, scene},
    wire,
    world::Nanos,
};

/// Starts the daemon of a place, unless one runs there.
///
/// # Panics
/// If the storage client can't be set up.
#[allow(clippy::expect_used, reason = "a mistake in the simulation itself")]
pub fn start(place: usize) {
    let scene = scene();
    if scene.places.borrow()[place].daemon.is_some() {
        return;
    }
    let plan = &scene.plan;
    let number = scene.next_daemon();
    let mut dice = scene.dice.borrow_mut().split();
    let clocks = plan.clocks(scene.world.now(), &mut dice);
    let machine = scene.world.add_machine(clocks, dice.split());
    let azure = config::Azure {
        connection_string: Some(SecretText::new("UseDevelopmentStorage=true".to_owned())),
        container: "locks".to_owned(),
        collect_after: plan.collect_after,
        ..config::Azure::default()
    };
    let sessions = session::Settings {
        default_ttl: plan.ttl,
        longest_ttl: std::time::Duration::from_secs(60),
        max_sessions: 100,
        max_locks_per_session: 100,
    };
    let locks = lock::Settings {
        lease_duration: plan.lease,
        linger: plan.linger,
        poll_interval: plan.poll,
        max_locks: 100,
        max_waiters_per_lock: 100,
    };
    let driver = scene.world.as_machine(machine, || {
        let account = Account::over(wire::transport(place, number), &azure);
        let account = account.expect("the client can be set up");
        let name = format!("place {place} (pid {number})");
        let store = Azure::new(account, &azure, name, Entropy::seeded(dice.bits()));
        let store = Scarce { store, tokens: plan.tokens };
        let driver = Driver::new(sessions, locks, Arc::new(store), Entropy::seeded(dice.bits()));
        task::spawn(driver.clone().keep_time());
        task::spawn(driver.clone().look_elsewhere());
        driver
    });
    let mut places = scene.places.borrow_mut();
    places[place].latest = number;
    places[place].daemon = Some(Running { number, machine, driver });
}

/// Its process is gone, without a word. It is started again after `down`, if
/// that is given.
pub fn crash(place: usize, down: Option<Nanos>) {
    let scene = scene();
    let running = scene.places.borrow_mut()[place].daemon.take();
    let Some(running) = running else { return };
    record(Event::DaemonDied { daemon: running.number });
    scene.world.crash(running.machine);
    scene.world.as_machine(running.machine, || drop(running));
    if let Some(down) = down {
        scene.world.after(down, move || start(place));
    }
}

/// It is told to stop: it waits for its holders, gives up its leases, and ends.
pub fn stop(place: usize, down: Nanos) {
    let scene = scene();
    let Some(Running { number, machine, driver }) = scene.running(place) else { return };
    let drain = scene.plan.drain;
    scene.world.as_machine(machine, || {
        task::spawn(async move {
            driver.drain(drain).await;
            driver.end_streams();
            leasehold::clock::sleep(std::time::Duration::from_millis(300)).await;
            count("daemon: stopped");
            let scene = crate::scene::scene();
            scene.world.after(0, move || {
                if crate::scene::scene().running(place).is_some_and(|now| now.number == number) {
                    crash(place, Some(down));
                }
            });
        });
    });
}

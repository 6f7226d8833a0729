//! Daemons: the product's own, from the session stream to the storage client.

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use leasehold::{
    config::{self, SecretText},
    driver::Driver,
    lease::{azure::Azure, azure::account::Account},
};
use leasehold_check::Event;
use leasehold_core::{lock, session};
use leasehold_runtime as task;
use leasehold_time::Entropy;

use crate::{
    broken_store::BrokenStore,
    faults,
    misleading::Misleading,
    observer,
    scarce::Scarce,
    scene::{Running, count, record, scene},
    wire,
    world::{Nanos, SECOND},
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
    if scene.plan.embedded.is_some() {
        return crate::embedded::daemon::start(place);
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
        longest_ttl: Duration::from_secs(60),
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
        let store = Misleading::new(Scarce { store, tokens: plan.tokens });
        let store = BrokenStore::new(store, place, number);
        let driver = Driver::new(sessions, locks, Arc::new(store), Entropy::seeded(dice.bits()));
        task::spawn(driver.clone().keep_time());
        task::spawn(driver.clone().poll_peers());
        driver
    });
    let mut places = scene.places.borrow_mut();
    (places[place].latest, places[place].stopping) = (number, false);
    places[place].numbers.push(number);
    places[place].since = scene.world.now();
    let running = Running { number, machine, driver };
    places[place].daemon = Some(running.clone());
    drop(places);
    if plan.observed {
        observer::start(&running, dice.split());
    }
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
/// That is no death: nobody has to wait for anything that it leaves behind.
pub fn stop(index: usize, place: usize, down: Nanos) {
    let scene = scene();
    let Some(Running { number, machine, driver }) = scene.running(place) else { return };
    if scene.places.borrow()[place].stopping {
        return;
    }
    let drain = scene.plan.drain;
    scene.places.borrow_mut()[place].draining = Some(number);
    scene.world.as_machine(machine, || {
        task::spawn(async move {
            let mut told = false;
            {
                let mut drained = pin!(driver.drain(drain));
                poll_fn(|cx| {
                    let drained = drained.as_mut().poll(cx);
                    if !std::mem::replace(&mut told, true) {
                        // When all that was said before is on its way.
                        crate::scene::scene().world.after(0, move || stops(index, place, number));
                    }
                    drained
                })
                .await;
            }
            if let Some(store) = crate::embedded::daemon::store(number) {
                _ = leasehold_store::LeaseStore::close(&store).await;
            }
            driver.end_streams();
            leasehold_runtime::sleep(Duration::from_millis(300)).await;
            count("daemon: stopped");
            crate::scene::scene().world.after(0, move || end(place, number, down));
        });
    });
}

/// From here on it grants nothing.
fn stops(index: usize, place: usize, number: u32) {
    let scene = scene();
    let is_there = scene.running(place).is_some_and(|running| running.number == number);
    if is_there && scene.stops(place) {
        let longest = (scene.plan.drain + scene.plan.ttl).as_nanos() as Nanos;
        faults::disturb(index, longest + 5 * SECOND, || {});
    }
}

fn end(place: usize, number: u32, down: Nanos) {
    let scene = scene();
    let mut places = scene.places.borrow_mut();
    let ended = places[place].daemon.take_if(|running| running.number == number);
    drop(places);
    if let Some(ended) = ended {
        scene.world.crash(ended.machine);
        scene.world.as_machine(ended.machine, || drop(ended));
        scene.world.after(down, move || start(place));
    }
}

//! Daemons: the product from the session stream to the storage client.

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use leasehold::{
    config::{self, SecretText},
    driver::Driver,
    telemetry::Telemetry,
};
use leasehold_azure_store::{AzureStore, account::Account};
use leasehold_checker::Event;
use leasehold_core::{lock, session};
use leasehold_runtime as task;
use leasehold_time::Entropy;

use crate::{
    broken_store::BrokenStore,
    faults,
    limited_tokens::LimitedTokens,
    observer,
    observer_mutants::ObserverMutants,
    sim_state::{Running, count, record, sim},
    wire,
    world::{Nanos, SECOND},
};

/// Starts the daemon of a place, unless one is running there.
///
/// # Panics
/// If the storage client can't be set up.
#[allow(clippy::expect_used, reason = "a bug in the simulation")]
pub fn start(place: usize) {
    let sim = sim();
    if sim.places.borrow()[place].daemon.is_some() {
        return;
    }
    if sim.plan.embedded.is_some() {
        return crate::embedded::daemon::start(place);
    }
    let plan = &sim.plan;
    let number = sim.next_daemon();
    let mut rng = sim.rng.borrow_mut().split();
    let clocks = plan.clocks(sim.world.now(), &mut rng);
    let machine = sim.world.add_machine(clocks, rng.split());
    let azure = config::Azure {
        connection_string: Some(SecretText::new("UseDevelopmentStorage=true".to_owned())),
        container: "locks".to_owned(),
        gc_after: plan.gc_after,
        ..config::Azure::default()
    }
    .settings();
    let sessions = session::Settings {
        default_ttl: plan.ttl,
        max_ttl: Duration::from_secs(60),
        max_sessions: 100,
        max_locks_per_session: 100,
    };
    let locks = lock::Settings {
        lease_duration: plan.lease,
        linger: plan.linger,
        poll_interval: plan.poll,
        max_locks: 100,
        max_waiters_per_lock: 100,
        journal: leasehold_core::journal::Level::Off,
    };
    let driver = sim.world.as_machine(machine, || {
        let account = Account::over(wire::transport(place, number), &azure);
        let account = account.expect("the client can be set up");
        let name = format!("place {place} (pid {number})");
        let store = AzureStore::new(account, &azure, name, Entropy::seeded(rng.bits()));
        let store = ObserverMutants::new(LimitedTokens { store, tokens: plan.tokens });
        let store = BrokenStore::new(store, place, number);
        let driver = Driver::new(
            sessions,
            locks,
            Arc::new(store),
            Entropy::seeded(rng.bits()),
            Telemetry::default(),
        );
        task::spawn(driver.clone().keep_time());
        task::spawn(driver.clone().poll_peers());
        driver
    });
    let mut places = sim.places.borrow_mut();
    (places[place].latest, places[place].stopping) = (number, false);
    places[place].numbers.push(number);
    places[place].since = sim.world.now();
    let running = Running { number, machine, driver };
    places[place].daemon = Some(running.clone());
    drop(places);
    if plan.observed {
        observer::start(&running, rng.split());
    }
}

/// Crashes a daemon without notifying its clients. Starts it again after
/// `down`, if set.
pub fn crash(place: usize, down: Option<Nanos>) {
    let sim = sim();
    let running = sim.places.borrow_mut()[place].daemon.take();
    let Some(running) = running else { return };
    record(Event::DaemonDied { daemon: running.number });
    sim.world.crash(running.machine);
    sim.world.as_machine(running.machine, || drop(running));
    if let Some(down) = down {
        sim.world.after(down, move || start(place));
    }
}

/// Shuts a daemon down: it drains, releases its leases and exits. This is not
/// recorded as a crash, because no client has to wait for its leases to expire.
pub fn stop(index: usize, place: usize, down: Nanos) {
    let sim = sim();
    let Some(Running { number, machine, driver }) = sim.running(place) else { return };
    if sim.places.borrow()[place].stopping {
        return;
    }
    let drain = sim.plan.drain;
    sim.places.borrow_mut()[place].draining = Some(number);
    sim.world.as_machine(machine, || {
        task::spawn(async move {
            let mut is_requested = false;
            {
                let mut drained = pin!(driver.drain(drain));
                poll_fn(|cx| {
                    let drained = drained.as_mut().poll(cx);
                    if !std::mem::replace(&mut is_requested, true) {
                        // After all messages sent so far are in flight.
                        crate::sim_state::sim()
                            .world
                            .after(0, move || record_stop(index, place, number));
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
            crate::sim_state::sim().world.after(0, move || end(place, number, down));
        });
    });
}

/// Records that the daemon no longer grants locks.
fn record_stop(index: usize, place: usize, number: u32) {
    let sim = sim();
    let is_there = sim.running(place).is_some_and(|running| running.number == number);
    if is_there && sim.refuse_waiters(place) {
        let max_time = (sim.plan.drain + sim.plan.ttl).as_nanos() as Nanos;
        faults::disturb(index, max_time + 5 * SECOND, || {});
    }
}

fn end(place: usize, number: u32, down: Nanos) {
    let sim = sim();
    let mut places = sim.places.borrow_mut();
    let ended = places[place].daemon.take_if(|running| running.number == number);
    drop(places);
    if let Some(ended) = ended {
        sim.world.crash(ended.machine);
        sim.world.as_machine(ended.machine, || drop(ended));
        sim.world.after(down, move || start(place));
    }
}

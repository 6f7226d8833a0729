//! Lets a plan's faults happen.

use leasehold::{lease::Breaker, name::LockName, task};
use leasehold_check::Event;

use crate::{
    client,
    clock::Stop,
    daemon,
    plan::Fault,
    scene::{Scene, blob_path, count, lock_name, record, scene},
    storage::{Act, Call},
    wire::Trap,
    world::{Machine, Nanos, SECOND},
};

/// Puts all of a plan's faults into the world's calendar.
pub fn schedule(scene: &Scene) {
    for (index, (at, fault)) in scene.plan.faults.iter().enumerate() {
        let fault = fault.clone();
        scene.world.at(*at, move || happen(index, fault));
    }
    scene.world.at(scene.plan.calm_from, calm);
}

/// From here on nothing is wrong any more.
fn calm() {
    let scene = scene();
    *scene.trap.borrow_mut() = None;
    for place in 0..scene.plan.places {
        daemon::start(place);
    }
}

/// How long it takes until calls that were made before the end of a disturbance
/// are over.
const SETTLE: Nanos = 12 * SECOND;

/// Disturbs for a while.
fn disturb(index: usize, length: Nanos, end: impl FnOnce() + 'static) {
    let what = format!("fault {index}");
    record(Event::Disturbed { what: what.clone() });
    scene().world.after(length, move || {
        end();
        scene().world.after(SETTLE, move || record(Event::Undisturbed { what }));
    });
}

fn machine(daemon: bool, which: usize) -> Option<Machine> {
    let scene = scene();
    if daemon {
        return scene.running(which % scene.plan.places).map(|running| running.machine);
    }
    let clients = scene.clients.borrow();
    let alive: Vec<_> =
        clients.iter().map(|client| client.machine).filter(|m| scene.world.is_alive(*m)).collect();
    alive.get(which % alive.len().max(1)).copied()
}

/// The numbers of the clients that are alive.
fn alive() -> Vec<u32> {
    let scene = scene();
    let clients = scene.clients.borrow();
    let numbers = (0..clients.len()).filter(|n| scene.world.is_alive(clients[*n].machine));
    numbers.map(|number| number as u32).collect()
}

#[allow(clippy::too_many_lines, reason = "a list")]
fn happen(index: usize, fault: Fault) {
    let scene = scene();
    scene.trace(|| format!("    {fault:?}"));
    let longest_lease = scene.plan.longest_lease.as_nanos() as Nanos;
    match fault {
        Fault::Storm { place, share, kinds, length } => {
            count("faults: storage storm");
            scene.places.borrow_mut()[place].road.storm = Some((share, kinds));
            disturb(index, length, move || {
                crate::scene::scene().places.borrow_mut()[place].road.storm = None;
            });
        }
        Fault::Cut { place, out, back, length } => {
            count("faults: storage cut off");
            let set = move |out, back| {
                let scene = crate::scene::scene();
                let mut places = scene.places.borrow_mut();
                (places[place].road.cut_out, places[place].road.cut_back) = (out, back);
            };
            set(out, back);
            disturb(index, length, move || set(false, false));
        }
        Fault::Outage { length } => {
            count("faults: storage outage");
            let set = |refused| {
                for place in crate::scene::scene().places.borrow_mut().iter_mut() {
                    place.road.refused = refused;
                }
            };
            set(true);
            disturb(index, length, move || set(false));
        }
        Fault::PauseDaemon { place, how, length } => {
            count(pause_name(
                how,
                "faults: daemon paused",
                "faults: daemon suspended",
                "faults: daemon frozen",
            ));
            pause(index, machine(true, place).into_iter().collect(), how, length);
        }
        Fault::PauseClient { client, how, length } => {
            count(pause_name(
                how,
                "faults: client paused",
                "faults: client suspended",
                "faults: client frozen",
            ));
            pause(index, machine(false, client).into_iter().collect(), how, length);
        }
        Fault::PauseBoth { client, how, length } => {
            count(pause_name(
                how,
                "faults: both paused",
                "faults: both suspended",
                "faults: both frozen",
            ));
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)) else { return };
            let (machine_of, place) = {
                let clients = scene.clients.borrow();
                (clients[*number as usize].machine, clients[*number as usize].place)
            };
            let mut machines = vec![machine_of];
            machines.extend(machine(true, place));
            pause(index, machines, how, length);
        }
        Fault::KillDaemon { place, silent, down } => {
            count(if silent { "faults: daemon's host vanished" } else { "faults: daemon killed" });
            if silent {
                vanish(|connection| connection.place == place);
            }
            daemon::crash(place, Some(down));
            if scene.world.now() < scene.plan.calm_from {
                disturb(index, down, || {});
            }
        }
        Fault::TrapDaemon { place, kind, stage, down } => {
            count("faults: trap for a daemon");
            *scene.trap.borrow_mut() = Some(Trap { place, kind, stage, down });
            // It may take long until it snaps.
            disturb(index, scene.plan.calm_from - scene.world.now(), || {});
        }
        Fault::StopDaemon { place, down } => {
            count("faults: daemon told to stop");
            daemon::stop(place, down);
            // Whoever waits there is served when another has taken its place.
            let ends = scene.plan.drain + scene.plan.ttl;
            let ends = ends.as_nanos() as Nanos + 5 * SECOND + down;
            disturb(index, ends.max(scene.plan.calm_from - scene.world.now()), || {});
        }
        Fault::KillClient { client, silent, down } => {
            count(if silent { "faults: client's host vanished" } else { "faults: client killed" });
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)).copied() else { return };
            if silent {
                vanish(|connection| connection.client == number);
            }
            let (machine, place, waits) = {
                let client = &scene.clients.borrow()[number as usize];
                (client.machine, client.place, client.pending.is_some())
            };
            if silent && waits {
                // Until its session has expired, it may be granted what it waits
                // for.
                disturb(index, scene.plan.ttl.as_nanos() as Nanos + SECOND, || {});
            }
            record(Event::ClientDied { client: number });
            scene.world.crash(machine);
            scene.world.after(down, move || client::start(place));
        }
        Fault::CutLink { client, up, down, length } => {
            count("faults: client cut off");
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)).copied() else { return };
            let place = scene.clients.borrow()[number as usize].place;
            scene.cut.borrow_mut().insert((number, place), (up, down));
            stall(number, place, up, down);
            disturb(index, length, move || {
                let scene = crate::scene::scene();
                scene.cut.borrow_mut().remove(&(number, place));
                stall(number, place, false, false);
            });
        }
        Fault::ResetLink { client } => {
            count("faults: connection reset");
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)).copied() else { return };
            for connection in &*scene.connections.borrow() {
                if connection.client == number {
                    connection.up.reset();
                    connection.down.reset();
                }
            }
            disturb(index, SECOND, || {});
        }
        Fault::Drift { daemon, which, drift } => {
            count("faults: clock drifts");
            if scene.plan.bad_clocks {
                count("faults: clock drifts beyond what is assumed");
            }
            if let Some(machine) = machine(daemon, which) {
                scene.world.change_clocks(machine, |clocks, now| clocks.set_drift(drift, now));
                scene.look_at(machine);
            }
        }
        Fault::SetWall { daemon, which, by } => {
            count("faults: wall clock set");
            if let Some(machine) = machine(daemon, which) {
                scene.world.change_clocks(machine, |clocks, now| clocks.set_wall(by, now));
            }
            disturb(index, SECOND, || {});
        }
        Fault::Break { place, lock } => {
            count("operator: break");
            operate(
                place,
                move |driver, name, breaker| async move {
                    _ = driver.break_lock(name, breaker).await;
                },
                lock,
            );
            disturb(index, scene.plan.ttl.as_nanos() as Nanos + 15 * SECOND, || {});
        }
        Fault::StepDown { place, lock } => {
            count("operator: step down");
            operate(
                place,
                move |driver, name, breaker| async move {
                    let within = std::time::Duration::from_secs(2);
                    _ = driver.step_down(name, breaker, within).await;
                },
                lock,
            );
            disturb(index, 5 * SECOND, || {});
        }
        Fault::BreakLease { lock } => {
            count("operator: lease broken at once");
            overrule(lock);
            operator_call(lock, Act::Break { within: Some(0) });
            disturb(index, longest_lease, || {});
        }
        Fault::Usurp { lock } => {
            count("operator: lease usurped");
            overrule(lock);
            operator_call(lock, Act::Break { within: Some(0) });
            let id = "00000000-0000-0000-0000-000000000000".to_owned();
            operator_call(lock, Act::Acquire { id, seconds: 15 });
            disturb(index, longest_lease, || {});
        }
        Fault::Delete { lock } => {
            // Within the second of its creation a blob's tokens are ahead of the
            // service's clock: what is not guaranteed is not tried.
            if token_of(lock) >> 20 > scene.date() {
                return;
            }
            count("operator: blob deleted");
            overrule(lock);
            scene.storage.borrow_mut().remove(&blob_path(lock));
            record(Event::Deleted { lock });
            scene.note_lease(lock);
            disturb(index, longest_lease, || {});
        }
        Fault::Garble { lock, length } => {
            count("operator: blob garbled");
            overrule(lock);
            let garbage = [("token".to_owned(), "none".to_owned())].into();
            scene.storage.borrow_mut().put(&blob_path(lock), garbage, scene.date());
            record(Event::Tampered { lock });
            scene.note_lease(lock);
            disturb(index, length.max(2 * SECOND), move || repair(lock));
            disturb(1000 + index, longest_lease, || {});
        }
        Fault::Restore { lock, length } => {
            count("operator: old blob restored");
            let path = blob_path(lock);
            let old = scene.storage.borrow().blob(&path).map(|blob| blob.metadata.clone());
            let Some(old) = old else { return };
            disturb(index, length, move || {
                let scene = crate::scene::scene();
                let date = scene.date();
                // Within the second in which the lock was used last, neither what
                // is stored nor the service's clock tells that it was: what is not
                // guaranteed is not tried.
                if token_of(lock) >> 20 >= date {
                    return;
                }
                overrule(lock);
                scene.storage.borrow_mut().put(&path, old, date);
                record(Event::Tampered { lock });
                scene.note_lease(lock);
                // Those who have seen more freeze the lock, until somebody deletes
                // the blob.
                scene.world.after(SETTLE / 2, move || repair(lock));
                disturb(1000 + index, longest_lease, || {});
            });
        }
        Fault::LeapDate { by, length } => {
            count("storage: clock ahead");
            scene.date_ahead.set(by);
            disturb(index, length, || crate::scene::scene().date_ahead.set(0));
        }
    }
}

const fn pause_name(
    how: Option<Stop>,
    paused: &'static str,
    suspended: &'static str,
    frozen: &'static str,
) -> &'static str {
    match how {
        None => paused,
        Some(Stop::Suspended) => suspended,
        Some(Stop::Frozen) => frozen,
    }
}

fn pause(index: usize, machines: Vec<Machine>, how: Option<Stop>, length: Nanos) {
    let scene = scene();
    for machine in &machines {
        scene.world.pause(*machine, how);
    }
    disturb(index, length, move || {
        let scene = crate::scene::scene();
        for machine in machines {
            scene.world.go_on(machine, how);
        }
    });
}

/// Nobody on the other side hears that they are gone.
fn vanish(which: impl Fn(&crate::link::Connection) -> bool) {
    for connection in scene().connections.borrow().iter().filter(|c| which(c)) {
        connection.up.stall(true);
        connection.down.stall(true);
    }
}

fn stall(client: u32, place: usize, up: bool, down: bool) {
    for connection in &*scene().connections.borrow() {
        if (connection.client, connection.place) == (client, place) {
            connection.up.stall(up);
            connection.down.stall(down);
        }
    }
}

/// What an operator does through a daemon.
fn operate<F: Future<Output = ()> + Send + 'static>(
    place: usize,
    act: impl FnOnce(leasehold::driver::Driver, LockName, Breaker) -> F,
    lock: u32,
) {
    let scene = scene();
    let Some(running) = scene.running(place) else { return };
    let Ok(name) = LockName::parse("", &lock_name(lock)) else { return };
    let breaker = Breaker { by: "operator".into(), reason: "a simulation".into() };
    let task = act(running.driver, name, breaker);
    scene.world.as_machine(running.machine, || task::spawn(task));
}

/// An operator deletes a blob that can't be trusted.
fn repair(lock: u32) {
    let scene = scene();
    overrule(lock);
    scene.storage.borrow_mut().remove(&blob_path(lock));
    record(Event::Deleted { lock });
    scene.note_lease(lock);
}

/// The token that is stored with a lock.
fn token_of(lock: u32) -> u64 {
    let scene = scene();
    let storage = scene.storage.borrow();
    let token = storage.blob(&blob_path(lock)).and_then(|blob| blob.metadata.get("token"));
    token.and_then(|token| token.parse().ok()).unwrap_or(0)
}

fn operator_call(lock: u32, act: Act) {
    let call = Call { path: blob_path(lock), act, if_match: None, if_absent: false, lease: None };
    scene().apply(None, &call);
}

/// What an operator does to a leased blob behind the daemons' backs makes two
/// holders for a while: tokens tell them apart.
fn overrule(lock: u32) {
    let scene = scene();
    let now = scene.world.now();
    let until = scene.storage.borrow().blob(&blob_path(lock)).and_then(|b| b.leased_until(now));
    if let Some(until) = until {
        record(Event::Overruled { lock, until });
    }
}

//! Injects the faults of a plan.

mod operator;

use leasehold_checker::Event;

pub use self::operator::break_lease;
use self::operator::{
    contents, delete, etag_of, is_epoch_ahead, operate, operator_call, record_override, repair,
    replace_blob, restart_all,
};
use leasehold_simulated_storage::storage::Operation;

use crate::{
    client,
    clock::Stop,
    daemon,
    plan::{DRIFT, Fault},
    sim_state::{SimState, blob_path, count, record, sim},
    wire::{CallFault, PendingCrash},
    world::{Machine, Nanos, SECOND},
};

/// Schedules all faults of the plan.
pub fn schedule(sim: &SimState) {
    for (index, (at, fault)) in sim.plan.faults.iter().enumerate() {
        let fault = fault.clone();
        sim.world.at(*at, move || inject(index, fault));
    }
    sim.world.at(sim.plan.calm_from, calm);
}

/// Starts the calm phase: clears pending faults and starts all daemons.
fn calm() {
    let sim = sim();
    *sim.pending_crash.borrow_mut() = None;
    sim.break_during_write.set(None);
    sim.disk.borrow_mut().pending_crash = None;
    for place in 0..sim.plan.places {
        daemon::start(place);
    }
}

/// Time until all calls that were sent before the end of a disturbance have
/// ended.
const SETTLE: Nanos = 12 * SECOND;

/// Records a disturbance of this length.
pub fn disturb(index: usize, length: Nanos, end: impl FnOnce() + 'static) {
    let what = format!("fault {index}");
    record(Event::Disturbed { what: what.clone() });
    sim().world.after(length, move || {
        end();
        sim().world.after(SETTLE, move || record(Event::Undisturbed { what }));
    });
}

fn machine(daemon: bool, which: usize) -> Option<Machine> {
    let sim = sim();
    if daemon {
        return sim.running(which % sim.plan.places).map(|running| running.machine);
    }
    let clients = sim.clients.borrow();
    let there = clients.iter().filter(|client| !client.closed).map(|client| client.machine);
    let alive: Vec<_> = there.filter(|machine| sim.world.is_alive(*machine)).collect();
    alive.get(which % alive.len().max(1)).copied()
}

/// Returns the numbers of the clients that are alive.
fn alive() -> Vec<u32> {
    let sim = sim();
    let clients = sim.clients.borrow();
    let is_there = |n: &usize| !clients[*n].closed && sim.world.is_alive(clients[*n].machine);
    let numbers = (0..clients.len()).filter(is_there);
    numbers.map(|number| number as u32).collect()
}

#[allow(clippy::too_many_lines, reason = "one arm per fault")]
fn inject(index: usize, fault: Fault) {
    let sim = sim();
    sim.trace(|| format!("    {fault:?}"));
    let max_lease = sim.plan.max_lease.as_nanos() as Nanos;
    match fault {
        Fault::Storm { place, share, kinds, length } => {
            count("faults: storage storm");
            sim.places.borrow_mut()[place].storage_link.storms.push((index, share, kinds));
            disturb(index, length, move || {
                let sim = crate::sim_state::sim();
                sim.places.borrow_mut()[place].storage_link.storms.retain(|(of, ..)| *of != index);
            });
        }
        Fault::Cut { place, out, back, length } => {
            count("faults: storage cut off");
            let (out, back) = (u32::from(out), u32::from(back));
            {
                let storage_link = &mut sim.places.borrow_mut()[place].storage_link;
                (storage_link.cut_out, storage_link.cut_back) =
                    (storage_link.cut_out + out, storage_link.cut_back + back);
            }
            disturb(index, length, move || {
                let sim = crate::sim_state::sim();
                let storage_link = &mut sim.places.borrow_mut()[place].storage_link;
                (storage_link.cut_out, storage_link.cut_back) =
                    (storage_link.cut_out - out, storage_link.cut_back - back);
            });
        }
        Fault::Outage { length } => {
            count("faults: storage outage");
            sim.places.borrow_mut().iter_mut().for_each(|place| place.storage_link.refused += 1);
            disturb(index, length, move || {
                let sim = crate::sim_state::sim();
                sim.places
                    .borrow_mut()
                    .iter_mut()
                    .for_each(|place| place.storage_link.refused -= 1);
            });
        }
        Fault::PauseDaemon { place, how, length } => {
            count(pause_name(
                how,
                "faults: daemon paused",
                [
                    "faults: daemon suspended",
                    "faults: daemon suspended with its wall clock",
                    "faults: daemon's VM paused",
                ],
            ));
            pause(index, machine(true, place).into_iter().collect(), how, length);
        }
        Fault::PauseClient { client, how, length } => {
            count(pause_name(
                how,
                "faults: client paused",
                [
                    "faults: client suspended",
                    "faults: client suspended with its wall clock",
                    "faults: client's VM paused",
                ],
            ));
            pause(index, machine(false, client).into_iter().collect(), how, length);
        }
        Fault::PauseBoth { client, how, length } => {
            count(pause_name(
                how,
                "faults: both paused",
                [
                    "faults: both suspended",
                    "faults: both suspended with its wall clock",
                    "faults: VMs of both paused",
                ],
            ));
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)) else { return };
            let (machine_of, place) = {
                let clients = sim.clients.borrow();
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
            let power_fails = silent && sim.plan.embedded.is_some();
            daemon::crash(place, Some(down));
            if power_fails {
                sim.disk.borrow_mut().fail_power();
            }
            if sim.world.now() < sim.plan.calm_from {
                disturb(index, down + sim.plan.crash_wait(), || {});
            }
        }
        Fault::CrashDuringCall { place, kind, stage, down } => {
            count("faults: daemon kill scheduled");
            *sim.pending_crash.borrow_mut() =
                Some(PendingCrash { index, place, kind, stage, down });
        }
        Fault::StopDaemon { place, down } => {
            count("faults: daemon shut down");
            daemon::stop(index, place, down);
        }
        Fault::KillClient { client, silent, down } => {
            count(if silent { "faults: client's host vanished" } else { "faults: client killed" });
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)).copied() else { return };
            if silent {
                vanish(|connection| connection.client == number);
            }
            let (machine, place, is_waiting) = {
                let client = &sim.clients.borrow()[number as usize];
                (client.machine, client.place, !client.pending.is_empty())
            };
            if silent && is_waiting {
                // Until its session expires, it may still be granted the lock.
                disturb(index, sim.plan.ttl.as_nanos() as Nanos + SECOND, || {});
            }
            record(Event::ClientDied { client: number });
            sim.world.crash(machine);
            sim.world.after(down, move || client::start(place));
        }
        Fault::CutLink { client, up, down, length } => {
            count("faults: client cut off");
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)).copied() else { return };
            let place = sim.clients.borrow()[number as usize].place;
            let (up, down) = (u32::from(up), u32::from(down));
            cut(number, place, |cut| *cut = (cut.0 + up, cut.1 + down));
            disturb(index, length, move || {
                cut(number, place, |cut| *cut = (cut.0 - up, cut.1 - down));
            });
        }
        Fault::ResetLink { client } => {
            count("faults: connection reset");
            let alive = alive();
            let Some(number) = alive.get(client % alive.len().max(1)).copied() else { return };
            for connection in &*sim.connections.borrow() {
                if connection.client == number {
                    connection.up.reset();
                    connection.down.reset();
                }
            }
            disturb(index, SECOND, || {});
        }
        Fault::Drift { daemon, which, drift } => {
            count("faults: clock drifts");
            if let Some(machine) = machine(daemon, which) {
                if drift.unsigned_abs() > DRIFT {
                    count("faults: clock drifts beyond the tolerated rate");
                    sim.mark_clock_broken(machine);
                }
                sim.world.change_clocks(machine, |clocks, now| clocks.set_drift(drift, now));
                sim.inspect_machine(machine);
            }
        }
        Fault::SetWall { daemon, which, by } => {
            let Some(machine) = machine(daemon, which) else { return };
            // Setting the wall clock would hide a VM pause that has not been
            // detected yet.
            if !sim.world.ran_evenly(machine, detection_time(machine)) {
                let fault = Fault::SetWall { daemon, which, by };
                if sim.world.now() + SECOND < sim.plan.calm_from {
                    sim.world.after(SECOND, move || inject(index, fault));
                }
                return;
            }
            count("faults: wall clock set");
            sim.world.set_wall(machine, by);
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
            disturb(index, sim.plan.ttl.as_nanos() as Nanos + 15 * SECOND, || {});
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
        Fault::BreakLease { lock } => break_lease(index, lock),
        Fault::BreakDuringWrite => sim.break_during_write.set(Some(index)),
        Fault::BreakAtExpiry { lock } => {
            count("operator: lease broken without a break period");
            // Not recorded as a disturbance: the lease ends on release or at
            // its normal expiry.
            operator_call(lock, Operation::Break { within: None });
        }
        Fault::SeizeLease { lock } => {
            count("operator: lease taken by another client");
            record_override(lock);
            operator_call(lock, Operation::Break { within: Some(0) });
            let id = "00000000-0000-0000-0000-000000000000".to_owned();
            operator_call(lock, Operation::Acquire { id, seconds: 15 });
            // This lease is not released.
            disturb(index, max_lease + sim.plan.behavior.grace, || {});
        }
        Fault::DeleteUsed { lock } => {
            let date = sim.date();
            // Not in the last third of a second: there would be no time left to
            // create the blob again.
            if sim.epoch(lock) == date && sim.world.now() % SECOND < 2 * SECOND / 3 {
                count("operator: blob deleted while in use");
                repair(lock);
                disturb(index, max_lease, || {});
            } else if sim.world.now() + SECOND < sim.plan.calm_from {
                sim.world.after(SECOND / 20, move || inject(index, Fault::DeleteUsed { lock }));
            }
        }
        Fault::DeleteKnown { lock } => {
            count("operator: blob known to the daemon deleted");
            delete(lock);
            disturb(index, max_lease, || {});
        }
        Fault::Delete { lock } => {
            if is_epoch_ahead(lock) {
                return;
            }
            count("operator: blob deleted");
            repair(lock);
            disturb(index, max_lease, || {});
        }
        Fault::CorruptRecord { lock, put_back, restart, length } => {
            let before = contents(lock).filter(|_| put_back);
            if put_back && before.is_none() {
                return;
            }
            count("operator: record corrupted");
            let invalid = [("token".to_owned(), "none".to_owned())].into();
            let Some(etag) = replace_blob(lock, (invalid, Vec::new()), sim.date()) else { return };
            restart_all(restart);
            disturb(index, length.max(2 * SECOND), move || {
                // Only if the blob has not been overwritten or deleted.
                if etag_of(lock) == Some(etag) {
                    match before {
                        Some(before) => {
                            _ = replace_blob(lock, before, crate::sim_state::sim().date())
                        }
                        None => repair(lock),
                    }
                }
            });
            disturb(1000 + index, max_lease, || {});
        }
        Fault::Restore { lock, length } => {
            count("operator: old blob restored");
            let Some(old) = contents(lock) else { return };
            disturb(index, length, move || {
                let sim = crate::sim_state::sim();
                // Skipped within the second in which the lock was last used:
                // neither the record nor the service's clock shows that use, so
                // tokens are not guaranteed to increase.
                if sim.epoch(lock) >= sim.date() {
                    return;
                }
                if replace_blob(lock, old, sim.date()).is_none() {
                    return;
                }
                // Daemons that have seen a higher token freeze the lock until
                // the blob is deleted.
                sim.world.after(SETTLE / 2, move || repair(lock));
                disturb(1000 + index, max_lease, || {});
            });
        }
        Fault::RestoreKnown { lock, length } => {
            count("operator: old blob restored below known tokens");
            let Some(old) = contents(lock) else { return };
            disturb(index, length, move || {
                let sim = crate::sim_state::sim();
                if replace_blob(lock, old, sim.date()).is_none() {
                    return;
                }
                // The daemon freezes the lock until the blob is deleted.
                sim.world.after(SETTLE / 2, move || delete(lock));
                disturb(1000 + index, max_lease, || {});
            });
        }
        Fault::RestoreBackup { lock, age, restart, length } => {
            let leased = {
                let storage = sim.storage.borrow();
                let blob = storage.blob(&blob_path(lock));
                blob.is_some_and(|blob| blob.leased_until(sim.world.now()).is_some())
            };
            // Use the correct date: the clock may be corrected before the blob
            // is used.
            let date = sim.correct_date();
            if leased || sim.epoch(lock) >= date {
                // A blob in use is not restored: try again later.
                let fault = Fault::RestoreBackup { lock, age, restart, length };
                if sim.world.now() + length + SECOND < sim.plan.calm_from {
                    sim.world.after(SECOND / 5, move || inject(index, fault));
                }
                return;
            }
            let used = date - age;
            let Some(etag) = replace_blob(lock, crate::run::old_record(used), used) else { return };
            count("operator: backup restored");
            restart_all(restart);
            // Slow calls, so that an incorrect garbage collection of this blob
            // would overlap with acquires.
            let kinds = [CallFault::Slow, CallFault::Late, CallFault::Twice];
            for place in sim.places.borrow_mut().iter_mut() {
                place.storage_link.storms.push((index, 300, kinds.to_vec()));
            }
            disturb(index, length, move || {
                for place in crate::sim_state::sim().places.borrow_mut().iter_mut() {
                    place.storage_link.storms.retain(|(of, ..)| *of != index);
                }
                // The blob was not used: daemons that have seen a higher token
                // have frozen the lock.
                if etag_of(lock) == Some(etag) {
                    repair(lock);
                }
                disturb(1000 + index, max_lease, || {});
            });
        }
        Fault::EditBlob { lock } => {
            let (now, date) = (sim.world.now(), sim.date());
            // A record changed by another operator fault is left alone.
            let token = contents(lock).and_then(|(record, _)| record.get("token")?.parse().ok());
            let sane = token.is_some_and(|token: u64| token >> 20 == sim.epoch(lock));
            if sane && sim.storage.borrow_mut().rewrite(&blob_path(lock), now, date) {
                count("operator: blob edited");
                sim.record_lease(lock);
            }
        }
        Fault::NoContainer { length } => {
            let locks = 0..sim.plan.locks;
            let is_deleted = sim.storage.borrow().is_container_deleted();
            if is_deleted || locks.clone().any(is_epoch_ahead) {
                return;
            }
            count("operator: container deleted");
            locks.for_each(repair);
            sim.storage.borrow_mut().delete_container();
            disturb(index, length, move || {
                crate::sim_state::sim().storage.borrow_mut().create_container();
                disturb(1000 + index, max_lease, || {});
            });
        }
        Fault::Disk(fault) => crate::embedded::faults::inject(index, &fault),
        Fault::AdvanceDate { by, length } => {
            count("storage: clock ahead");
            sim.ahead.borrow_mut().push((index, by));
            disturb(index, length, move || {
                crate::sim_state::sim().ahead.borrow_mut().retain(|(of, _)| *of != index);
            });
        }
    }
}

const fn pause_name(
    how: Option<Stop>,
    paused: &'static str,
    stopped: [&'static str; 3],
) -> &'static str {
    match how {
        None => paused,
        Some(how) => stopped[how as usize],
    }
}

/// Time for which a machine may fail to detect a change of its clocks. If its VM
/// is paused and its wall clock is set within this time, the pause can't be
/// detected. Daemons check their clocks every second; the validity
/// given to a client ends within its TTL.
fn detection_time(machine: Machine) -> Nanos {
    let sim = sim();
    let places = sim.places.borrow();
    let mut daemons = places.iter().filter_map(|place| place.daemon.as_ref());
    if daemons.any(|running| running.machine == machine) {
        2 * SECOND
    } else {
        sim.plan.ttl.as_nanos() as Nanos + SECOND
    }
}

fn pause(index: usize, mut machines: Vec<Machine>, how: Option<Stop>, length: Nanos) {
    let sim = sim();
    if how == Some(Stop::VmPaused) {
        machines.retain(|machine| !sim.world.was_set(*machine, detection_time(*machine)));
    }
    for machine in &machines {
        sim.world.pause(*machine, how);
    }
    disturb(index, length, move || {
        let sim = crate::sim_state::sim();
        for machine in machines {
            sim.world.resume(machine, how);
        }
    });
}

/// Makes connections silent: neither end is notified.
fn vanish(which: impl Fn(&crate::link::Connection) -> bool) {
    for connection in sim().connections.borrow().iter().filter(|c| which(c)) {
        connection.up.vanish();
        connection.down.vanish();
    }
}

/// Changes the number of faults that cut the link between a client and a place.
fn cut(client: u32, place: usize, change: impl Fn(&mut (u32, u32))) {
    let sim = sim();
    let (up, down) = {
        let mut cuts = sim.cut.borrow_mut();
        let cut = cuts.entry((client, place)).or_default();
        change(cut);
        *cut
    };
    for connection in &*sim.connections.borrow() {
        if (connection.client, connection.place) == (client, place) {
            connection.up.cut(up > 0);
            connection.down.cut(down > 0);
        }
    }
}

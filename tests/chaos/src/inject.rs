//! Injection of the planned faults.

use std::{fs, process::Stdio, sync::Arc, time::Duration};

use leasehold_checker::Event;
use leasehold_runtime::{sleep, sleep_until};
use leasehold_test_support::{program, proxy::Match};
use leasehold_time::Moment;
use nix::sys::signal::Signal;
use tokio::task::JoinSet;

use crate::{
    clients::{Clients, pause_request},
    daemons::Slot,
    fault::{Fault, StorageCut},
    link::{Link, Passage},
    locks,
    plan::Planned,
    record::nanos,
    world::{DAEMONS, LEASE, World, until},
};

/// Timeout of a shutdown: a daemon waits for its holders (3 s) and releases its
/// leases; with its storage unreachable, until they have expired.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// Time after a fault in which connections are restored and sessions resumed.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(3);

/// Timeout for a holder to get between its check and its write: holders can be
/// rare during many faults.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Outcome of a fault.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// Number of affected calls; none means that the fault missed.
    Calls(usize),
    /// The fault had no target.
    Missed,
    /// A process did not recover.
    Failed(String),
}

/// Waits for the start of a fault, and injects it until its end.
pub(crate) async fn inject(world: Arc<World>, round: Moment, planned: Planned) -> Outcome {
    sleep_until(round + planned.from).await;
    let what = planned.to_string();
    world.recorder.now(Event::Disturbed { what: what.clone() });
    let end = Moment::now() + planned.duration;
    let outcome = apply(&world, &planned.fault, end).await;
    sleep_until(end.max(Moment::now()) + planned.fault.late_effects() + SETTLE_TIME).await;
    world.recorder.now(Event::Undisturbed { what });
    outcome
}

async fn apply(world: &Arc<World>, fault: &Fault, end: Moment) -> Outcome {
    match *fault {
        Fault::KillDaemon { slot } => {
            let Some((daemon, at)) = world.slots[slot].kill() else { return Outcome::Missed };
            world.recorder.at(at, Event::DaemonDied { daemon });
            sleep_until(end).await;
            restart(world, slot).await
        }
        Fault::DrainDaemon { slot } => drain(world, slot, end).await,
        Fault::PauseDaemon { slot } => {
            let daemon = &world.slots[slot];
            pause(|signal| daemon.signal(signal), end).await
        }
        Fault::KillClients { process } => {
            if !kill_clients(world, process) {
                return Outcome::Missed;
            }
            sleep_until(end).await;
            world.clients[process].start();
            Outcome::Done
        }
        Fault::PauseClients { process } => {
            let clients = &world.clients[process];
            pause(|signal| clients.signal(signal), end).await
        }
        Fault::PauseBeforeWrite => {
            let duration = end.remaining();
            let Some(process) = pause_before_write(world).await else { return Outcome::Missed };
            sleep(duration).await;
            world.clients[process].resume();
            Outcome::Done
        }
        Fault::PauseBoth { slot, process } => {
            let (daemon, clients) = (&world.slots[slot], &world.clients[process]);
            pause(|signal| daemon.signal(signal) | clients.signal(signal), end).await
        }
        Fault::KillAll => kill_all(world, end).await,
        Fault::Storage { slot, cut } => cut_off(&world.slots[slot..=slot], cut, end).await,
        Fault::Outage { cut } => cut_off(&world.slots, cut, end).await,
        Fault::Calls { slot, kind, fault, times } => {
            let proxy = &world.slots[slot].proxy;
            let what = kind.map_or_else(Match::any, Match::from);
            let rule = proxy.when(what).times(times).then(fault);
            sleep_until(end).await;
            proxy.remove(rule);
            Outcome::Calls(proxy.used(rule))
        }
        Fault::Link { slot, process, passage, reset } => {
            let links = world.links.iter().enumerate();
            let links: Vec<&Link> = links
                .filter(|(from, _)| process.is_none_or(|process| process == *from))
                .map(|(_, links)| &links[slot])
                .collect();
            links.iter().for_each(|link| link.set(passage));
            sleep_until(end).await;
            for link in links {
                if reset {
                    link.reset();
                }
                link.set(Passage::Open);
            }
            Outcome::Done
        }
        Fault::Break { slot, lock } => break_lock(world, slot, lock, end).await,
        Fault::DeleteIdle { lock } => delete(world, lock, false, end).await,
        Fault::DeleteHeld => delete(world, locks::SABOTAGED, true, end).await,
    }
}

/// Pauses a process with SIGSTOP, and resumes it with SIGCONT at the end.
async fn pause(signal: impl Fn(Signal) -> bool, end: Moment) -> Outcome {
    if !signal(Signal::SIGSTOP) {
        return Outcome::Missed;
    }
    sleep_until(end).await;
    signal(Signal::SIGCONT);
    Outcome::Done
}

/// Pauses a client process while a client holds a lock, between its last check
/// of the guard and its write. Returns `None` if no client gets there.
pub(crate) async fn pause_before_write(world: &World) -> Option<usize> {
    let _one_at_a_time = world.pause_request.lock().await;
    let request = pause_request(&world.dir);
    fs::write(&request, "").unwrap();
    let limit = Moment::now() + PAUSE_TIMEOUT;
    loop {
        let is_canceled = limit.has_passed() && fs::remove_file(&request).is_ok();
        let found = world.clients.iter().position(Clients::has_paused_itself);
        if found.is_some() || is_canceled {
            return found;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn kill_all(world: &Arc<World>, end: Moment) -> Outcome {
    // A daemon may be restarting.
    until(SETTLE_TIME, || world.slots.iter().all(|slot| slot.number().is_some())).await;
    let mut killed = Vec::new();
    for (number, slot) in world.slots.iter().enumerate() {
        if let Some((daemon, at)) = slot.kill() {
            world.recorder.at(at, Event::DaemonDied { daemon });
            killed.push(number);
        }
    }
    sleep_until(end).await;
    let mut starts = JoinSet::new();
    for &slot in &killed {
        let world = Arc::clone(world);
        starts.spawn(async move { restart(&world, slot).await });
    }
    let outcomes = starts.join_all().await;
    let failed = outcomes.into_iter().find(|outcome| matches!(outcome, Outcome::Failed(_)));
    let done = if killed.len() == DAEMONS { Outcome::Done } else { Outcome::Missed };
    failed.unwrap_or(done)
}

/// Cuts daemons off from their storage.
async fn cut_off(slots: &[Slot], cut: StorageCut, end: Moment) -> Outcome {
    let start = Moment::now();
    for proxy in slots.iter().map(|slot| &slot.proxy) {
        match cut {
            // Blocks briefly on the proxy.
            StorageCut::Refused => tokio::task::block_in_place(|| proxy.cut()),
            StorageCut::Silent => proxy.stall(),
            StorageCut::RequestsLost => proxy.stall_requests(),
            StorageCut::AnswersLost => proxy.stall_responses(),
        }
    }
    sleep_until(end).await;
    let mut affected = 0;
    for proxy in slots.iter().map(|slot| &slot.proxy) {
        tokio::task::block_in_place(|| proxy.open());
        affected += proxy
            .calls()
            .iter()
            .filter(|call| call.received_at >= start && call.received_at < end)
            .count();
    }
    // A refused connection carries no call that could be counted.
    if matches!(cut, StorageCut::Refused) { Outcome::Done } else { Outcome::Calls(affected) }
}

async fn restart(world: &Arc<World>, slot: usize) -> Outcome {
    if world.start_daemon(slot).await {
        return Outcome::Done;
    }
    Outcome::Failed(format!("daemon {slot} did not restart"))
}

async fn drain(world: &Arc<World>, slot: usize, end: Moment) -> Outcome {
    let daemon = &world.slots[slot];
    let number = daemon.number();
    if number.is_none() || !daemon.terminate() {
        return Outcome::Missed;
    }
    let limit = Moment::now() + SHUTDOWN_TIMEOUT;
    let ended = loop {
        match daemon.poll_exit() {
            Some(ended) => break ended,
            // Killed by another fault, which starts the next daemon.
            None if daemon.number() != number => return Outcome::Done,
            None if limit.has_passed() => {
                return Outcome::Failed(format!("daemon {slot} did not exit after SIGTERM"));
            }
            None => sleep(Duration::from_millis(20)).await,
        }
    };
    world.recorder.at(ended.1, Event::DaemonDied { daemon: ended.0 });
    sleep_until(end).await;
    restart(world, slot).await
}

/// Kills a client process, and records the deaths of its clients.
pub(crate) fn kill_clients(world: &World, process: usize) -> bool {
    let Some(clients) = world.clients[process].kill() else { return false };
    for client in clients {
        world.recorder.now(Event::ClientDied { client });
    }
    true
}

/// Breaks a lock with the command line, as an operator does.
async fn break_lock(world: &World, slot: usize, lock: u32, end: Moment) -> Outcome {
    let Some(endpoint) = world.slots[slot].endpoint() else { return Outcome::Missed };
    let mut command = tokio::process::Command::from(program());
    command.env("LEASEHOLD_ENDPOINT", endpoint);
    command.args(["break", locks::name(lock), "--reason", "chaos"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut operator = command.spawn().unwrap();
    // The daemon may be paused.
    let status = tokio::select! {
        status = operator.wait() => status.is_ok_and(|status| status.success()),
        () = sleep(LEASE) => false,
    };
    sleep_until(end).await;
    if status { Outcome::Done } else { Outcome::Missed }
}

/// Deletes a lock's blob: as soon as it is not leased, or together with its
/// lease.
async fn delete(world: &World, lock: u32, with_lease: bool, end: Moment) -> Outcome {
    let blob = world.blob(lock);
    while !end.has_passed() {
        let may_be = !with_lease || break_lease(world, lock).await;
        let before = Moment::now();
        if may_be && blob.delete().await.is() == (202, "") {
            world.recorder.at(before, Event::Deleted { lock });
            return Outcome::Done;
        }
        // Most leases are short.
        sleep(Duration::from_millis(5)).await;
    }
    Outcome::Missed
}

/// Breaks a lease, if the blob is leased. The ETag proves that the lease still
/// belongs to the record that was read, or that no grant follows under it: the
/// record is unchanged when the lease is broken, and can't be written without
/// the lease afterwards.
async fn break_lease(world: &World, lock: u32) -> bool {
    let blob = world.blob(lock);
    let found = blob.head().await;
    if found.header("x-ms-lease-state") != Some("leased") {
        return false;
    }
    let before = Moment::now();
    let broken = blob.break_lease(Some(0)).if_match(found.etag()).await.is() == (202, "");
    if broken {
        let until = nanos(Moment::now() + LEASE);
        world.recorder.at(before, Event::Overruled { lock, until });
    }
    broken
}

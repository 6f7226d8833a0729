//! Does what the plan says.

use std::{fs, process::Stdio, sync::Arc, time::Duration};

use leasehold_checker::Event;
use leasehold_runtime::{sleep, sleep_until};
use leasehold_test_support::{program, proxy::Match};
use leasehold_time::Moment;
use nix::sys::signal::Signal;
use tokio::task::JoinSet;

use crate::{
    clients::{Clients, stop_sign},
    daemons::Slot,
    fault::{Fault, Way},
    link::{Link, Passage},
    locks,
    plan::Planned,
    record::nanos,
    world::{DAEMONS, LEASE, World, until},
};

/// A daemon that was told to end waits for its holders (3 s) and releases its
/// leases; with its storage out of reach that takes until they have run out.
const DRAIN: Duration = Duration::from_secs(60);

/// When a fault is over, connections come back and sessions are taken up again.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

/// Until a holder gets between its look and its write: they can be rare while
/// many things fail at once.
const INSIDE: Duration = Duration::from_secs(5);

/// What became of a fault.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// It was done to so many calls; if to none, it was missed.
    Calls(usize),
    /// There was nothing to do it to.
    Missed,
    /// Something did not come back.
    Failed(String),
}

/// Waits until it is time, and does one fault from its beginning to its end.
pub(crate) async fn inject(world: Arc<World>, round: Moment, planned: Planned) -> Outcome {
    sleep_until(round + planned.from).await;
    let what = planned.to_string();
    world.recorder.now(Event::Disturbed { what: what.clone() });
    let end = Moment::now() + planned.lasts;
    let outcome = make(&world, &planned.fault, end).await;
    sleep_until(end.max(Moment::now()) + planned.fault.aftermath() + SETTLE).await;
    world.recorder.now(Event::Undisturbed { what });
    outcome
}

async fn make(world: &Arc<World>, fault: &Fault, end: Moment) -> Outcome {
    match *fault {
        Fault::KillDaemon { slot } => {
            let Some((daemon, at)) = world.slots[slot].kill() else { return Outcome::Missed };
            world.recorder.then(at, Event::DaemonDied { daemon });
            sleep_until(end).await;
            restart(world, slot).await
        }
        Fault::DrainDaemon { slot } => drain(world, slot, end).await,
        Fault::StopDaemon { slot } => {
            let daemon = &world.slots[slot];
            stopped(|signal| daemon.signal(signal), end).await
        }
        Fault::KillClients { process } => {
            if !kill_clients(world, process) {
                return Outcome::Missed;
            }
            sleep_until(end).await;
            world.clients[process].start();
            Outcome::Done
        }
        Fault::StopClients { process } => {
            let clients = &world.clients[process];
            stopped(|signal| clients.signal(signal), end).await
        }
        Fault::StopInside => {
            let lasts = end.remaining();
            let Some(process) = stop_inside(world).await else { return Outcome::Missed };
            sleep(lasts).await;
            world.clients[process].carry_on();
            Outcome::Done
        }
        Fault::StopBoth { slot, process } => {
            let (daemon, clients) = (&world.slots[slot], &world.clients[process]);
            stopped(|signal| daemon.signal(signal) | clients.signal(signal), end).await
        }
        Fault::KillAll => kill_all(world, end).await,
        Fault::Storage { slot, way } => cut_off(&world.slots[slot..=slot], way, end).await,
        Fault::Outage { way } => cut_off(&world.slots, way, end).await,
        Fault::Calls { slot, kind, fault, times } => {
            let proxy = &world.slots[slot].proxy;
            let what = kind.map_or_else(Match::any, Match::from);
            let rule = proxy.when(what).times(times).then(fault);
            sleep_until(end).await;
            proxy.remove(rule);
            Outcome::Calls(proxy.used(rule))
        }
        Fault::Link { slot, process, passage, reset } => {
            let ways = world.links.iter().enumerate();
            let links: Vec<&Link> = ways
                .filter(|(from, _)| process.is_none_or(|process| process == *from))
                .map(|(_, ways)| &ways[slot])
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

/// SIGSTOP, and SIGCONT at the end.
async fn stopped(signal: impl Fn(Signal) -> bool, end: Moment) -> Outcome {
    if !signal(Signal::SIGSTOP) {
        return Outcome::Missed;
    }
    sleep_until(end).await;
    signal(Signal::SIGCONT);
    Outcome::Done
}

/// Lets a process of clients be stopped while one of them holds a lock, between
/// its last look at its guard and its write. None if nobody gets there.
pub(crate) async fn stop_inside(world: &World) -> Option<usize> {
    let _one_at_a_time = world.stop_sign.lock().await;
    let sign = stop_sign(&world.dir);
    fs::write(&sign, "").unwrap();
    let limit = Moment::now() + INSIDE;
    loop {
        let too_late = limit.has_passed() && fs::remove_file(&sign).is_ok();
        let found = world.clients.iter().position(Clients::has_stopped_itself);
        if found.is_some() || too_late {
            return found;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn kill_all(world: &Arc<World>, end: Moment) -> Outcome {
    // One may just be on its way back.
    until(SETTLE, || world.slots.iter().all(|slot| slot.number().is_some())).await;
    let mut killed = Vec::new();
    for (number, slot) in world.slots.iter().enumerate() {
        if let Some((daemon, at)) = slot.kill() {
            world.recorder.then(at, Event::DaemonDied { daemon });
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

/// Daemons are cut off from their storage.
async fn cut_off(slots: &[Slot], way: Way, end: Moment) -> Outcome {
    let start = Moment::now();
    for proxy in slots.iter().map(|slot| &slot.proxy) {
        match way {
            // It waits for the proxy, though not for long.
            Way::Refused => tokio::task::block_in_place(|| proxy.cut()),
            Way::Silent => proxy.freeze(),
            Way::RequestsLost => proxy.freeze_requests(),
            Way::AnswersLost => proxy.freeze_answers(),
        }
    }
    sleep_until(end).await;
    let mut met = 0;
    for proxy in slots.iter().map(|slot| &slot.proxy) {
        tokio::task::block_in_place(|| proxy.open());
        met += proxy.calls().iter().filter(|call| call.came >= start && call.came < end).count();
    }
    // Who is refused a connection makes no call that could be counted.
    if matches!(way, Way::Refused) { Outcome::Done } else { Outcome::Calls(met) }
}

async fn restart(world: &Arc<World>, slot: usize) -> Outcome {
    if world.start_daemon(slot).await {
        return Outcome::Done;
    }
    Outcome::Failed(format!("daemon {slot} did not start again"))
}

async fn drain(world: &Arc<World>, slot: usize, end: Moment) -> Outcome {
    let daemon = &world.slots[slot];
    let told = daemon.number();
    if told.is_none() || !daemon.tell_to_end() {
        return Outcome::Missed;
    }
    let limit = Moment::now() + DRAIN;
    let ended = loop {
        match daemon.has_ended() {
            Some(ended) => break ended,
            // Killed meanwhile, by one who starts the next.
            None if daemon.number() != told => return Outcome::Done,
            None if limit.has_passed() => {
                return Outcome::Failed(format!("daemon {slot} was told to end and did not"));
            }
            None => sleep(Duration::from_millis(20)).await,
        }
    };
    world.recorder.then(ended.1, Event::DaemonDied { daemon: ended.0 });
    sleep_until(end).await;
    restart(world, slot).await
}

/// Kills a process of clients, and writes down who died.
pub(crate) fn kill_clients(world: &World, process: usize) -> bool {
    let Some(clients) = world.clients[process].kill() else { return false };
    for client in clients {
        world.recorder.now(Event::ClientDied { client });
    }
    true
}

/// As an operator does it: by the command line.
async fn break_lock(world: &World, slot: usize, lock: u32, end: Moment) -> Outcome {
    let Some(endpoint) = world.slots[slot].endpoint() else { return Outcome::Missed };
    let mut command = tokio::process::Command::from(program());
    command.env("LEASEHOLD_ENDPOINT", endpoint);
    command.args(["break", locks::name(lock), "--reason", "chaos"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut operator = command.spawn().unwrap();
    // The daemon may be stopped.
    let status = tokio::select! {
        status = operator.wait() => status.is_ok_and(|status| status.success()),
        () = sleep(LEASE) => false,
    };
    sleep_until(end).await;
    if status { Outcome::Done } else { Outcome::Missed }
}

/// Deletes a lock's blob: as soon as no lease protects it, or with its lease.
async fn delete(world: &World, lock: u32, with_lease: bool, end: Moment) -> Outcome {
    let blob = world.blob(lock);
    while !end.has_passed() {
        let may_be = !with_lease || take_lease(world, lock).await;
        let before = Moment::now();
        if may_be && blob.delete().await.is() == (202, "") {
            world.recorder.then(before, Event::Deleted { lock });
            return Outcome::Done;
        }
        // Most leases do not last for long.
        sleep(Duration::from_millis(5)).await;
    }
    Outcome::Missed
}

/// Takes a lease away, if there is one. It is that of the record that was seen before, or of
/// nobody who will be granted anything under it: the record is the same when
/// the lease is broken, and can't be written without the lease afterwards.
async fn take_lease(world: &World, lock: u32) -> bool {
    let blob = world.blob(lock);
    let seen = blob.head().await;
    if seen.header("x-ms-lease-state") != Some("leased") {
        return false;
    }
    let before = Moment::now();
    let broken = blob.break_lease(Some(0)).if_match(seen.etag()).await.is() == (202, "");
    if broken {
        let until = nanos(Moment::now() + LEASE);
        world.recorder.then(before, Event::Overruled { lock, until });
    }
    broken
}

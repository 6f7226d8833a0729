//! A run: rounds of faults, each followed by a time in which all must recover.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use leasehold::clock::{Moment, sleep, sleep_until};
use leasehold_check::Event;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    history,
    inject::{Outcome, inject, kill_clients, stop_inside},
    locks,
    options::Options,
    plan::{Plan, Planned, Round},
    record::{Reader, nanos},
    report::Report,
    world::{DAEMONS, LEASE, POLL, PROCESSES, World},
};

/// Until a lock that was held when its holder's daemon was lost can be granted
/// again, twice over, and some seconds for a machine that has a lot to do.
pub(crate) const RECOVERY: Duration =
    Duration::from_secs(2 * (LEASE.as_secs() + 2) + 2 * POLL.as_secs() + 10);

/// In so many rounds a paused process must have written where it should not.
const MANY: usize = 3;

/// So many clients must be granted each lock again.
fn enough(lock: u32) -> usize {
    if lock == locks::LONG { 1 } else { 3 }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let plan = Plan::new(options);
    println!("seed {}\n{plan}", options.seed);
    let dir = TempDir::with_prefix("leasehold-chaos-").unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let report = runtime.block_on(carry_out(&plan, dir.path(), options));
    runtime.shutdown_background();
    println!("{report}");
    if options.keep || !report.is_good() {
        println!("histories and logs: {}", dir.keep().display());
    }
    if report.is_good() {
        return ExitCode::SUCCESS;
    }
    println!("the same schedule again: {}", options.command());
    ExitCode::FAILURE
}

async fn carry_out(plan: &Plan, dir: &std::path::Path, options: &Options) -> Report {
    let world = World::begin(dir.to_owned(), options).await;
    let mut report = Report::default();
    for (number, round) in plan.0.iter().enumerate() {
        make_faults(&world, round, &mut report).await;
        recover(&world, &format!("after the faults of round {number}"), &mut report).await;
        // In calm, so that it is known how long the others had to wait.
        let process = stop_inside(&world).await.unwrap_or(number % PROCESSES);
        kill_clients(&world, process);
        world.clients[process].start();
        recover(&world, "after a holder was killed in calm", &mut report).await;
        if plan.0.len() > 1 {
            let slot = number % DAEMONS;
            if let Some((daemon, at)) = world.slots[slot].kill() {
                world.recorder.then(at, Event::DaemonDied { daemon });
            }
            if !world.start_daemon(slot).await {
                report.fail(format!("daemon {slot} did not start again"));
            }
            recover(&world, "after a daemon was killed in calm", &mut report).await;
        }
    }
    world.end().await;
    history::assemble(&world, &mut report);
    // Otherwise the pauses did not hit what they are for.
    if plan.0.len() >= MANY && report.unfenced_lost() == 0 {
        report.fail("nothing was lost where the lock alone was trusted".to_owned());
    }
    report
}

/// Until all faults of a round are over and settled.
async fn make_faults(world: &Arc<World>, round: &Round, report: &mut Report) {
    let start = Moment::now();
    let mut faults = JoinSet::new();
    for planned in &round.faults {
        let (world, planned) = (Arc::clone(world), *planned);
        faults.spawn(async move { (planned, inject(world, start, planned).await) });
    }
    sleep_until(start + round.length).await;
    world.heal();
    while let Some(ended) = faults.join_next().await {
        let (planned, outcome): (Planned, Outcome) = ended.unwrap();
        report.fault(&planned.fault, outcome);
    }
    world.heal();
    for (number, slot) in world.slots.iter().enumerate() {
        if let Some((daemon, _)) = slot.has_ended() {
            report.fail(format!("daemon {daemon} in slot {number} ended by itself"));
            world.start_daemon(number).await;
        }
    }
}

/// Waits until several clients were granted each lock that they asked for from
/// now on.
async fn recover(world: &World, when: &str, report: &mut Report) {
    let start = Moment::now();
    let mut reader = Reader::default();
    let mut asked = BTreeMap::new();
    let mut granted: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut waiting = Vec::new();
    loop {
        let mut news = reader.news(&world.dir);
        news.sort_by_key(|entry| entry.at);
        for entry in news {
            match entry.event {
                Event::Acquire { op, client, lock, .. } => {
                    asked.insert(op, (client, lock));
                }
                Event::Granted { op, .. } if entry.at >= nanos(start) => {
                    let (client, lock) = asked[&op];
                    granted.entry(lock).or_default().insert(client);
                }
                _ => {}
            }
        }
        waiting.clear();
        waiting.extend(
            locks::all().filter(|lock| {
                granted.get(lock).is_none_or(|clients| clients.len() < enough(*lock))
            }),
        );
        if waiting.is_empty() {
            let took = Moment::now().since(start);
            println!("{when}: all locks were granted again within {:.1} s", took.as_secs_f64());
            return report.recovered(took);
        }
        if Moment::now().since(start) > RECOVERY {
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    for lock in waiting {
        let count = granted.get(&lock).map_or(0, BTreeSet::len);
        let (lock, limit) = (locks::name(lock), RECOVERY.as_secs());
        report.fail(format!("{when}: {lock} was granted to {count} clients within {limit} s"));
    }
}

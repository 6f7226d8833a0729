//! A run: rounds of faults, each followed by a time in which all must recover.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use leasehold_checker::Event;
use leasehold_runtime::sleep_until;
use leasehold_time::Moment;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    history,
    inject::{Outcome, inject, kill_clients, stop_inside},
    options::Options,
    plan::{Plan, Planned, Round},
    recover::{RECOVERY, recover},
    report::Report,
    watchdog,
    world::{DAEMONS, PROCESSES, World},
};

/// In so many rounds everything must have been seen that is made here.
const MANY: usize = 3;

pub(crate) fn run(options: &Options) -> ExitCode {
    let plan = Plan::new(options);
    println!("seed {}\n{plan}", options.seed);
    let calm = RECOVERY * 3 * plan.0.len() as u32 + Duration::from_secs(60);
    let dir = TempDir::with_prefix("leasehold-chaos-").unwrap();
    watchdog::watch((options.length + calm) * 2, dir.path());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let carried_out = || runtime.block_on(carry_out(&plan, dir.path(), options));
    let Ok(report) = catch_unwind(AssertUnwindSafe(carried_out)) else {
        // The rest of it is not waited for, since it may be stuck.
        watchdog::end("it panicked", &dir.keep());
    };
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
        let inside = stop_inside(&world).await;
        let process = inside.unwrap_or(number % PROCESSES);
        kill_clients(&world, process);
        world.clients[process].start();
        report.done(HOLDER_KILLED, inside.is_some());
        let who = if inside.is_some() { "a holder was" } else { "clients were" };
        recover(&world, &format!("after {who} killed in calm"), &mut report).await;
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
    let stayed = world.end().await;
    for what in stayed.into_iter().chain(world.complaints()).chain(world.outcries()) {
        report.fail(what);
    }
    history::assemble(&world, &mut report);
    if plan.0.len() >= MANY {
        report.expect_everything();
    }
    report
}

/// As it is counted.
const HOLDER_KILLED: &str = "holder killed in calm";

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
    world.complaints().into_iter().for_each(|what| report.fail(what));
    // Where one ended by itself: what the others do is still of interest.
    for number in 0..DAEMONS {
        if world.slots[number].number().is_none() {
            world.start_daemon(number).await;
        }
    }
}

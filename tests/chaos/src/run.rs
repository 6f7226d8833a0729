//! Run: rounds of faults, each followed by a recovery.

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
    inject::{Outcome, inject, kill_clients, pause_before_write},
    options::Options,
    plan::{Plan, Planned, Round},
    recover::{RECOVERY, recover},
    report::Report,
    watchdog,
    world::{DAEMONS, PROCESSES, World},
};

/// Number of rounds after which every kind of fault must have had an effect.
const MIN_FULL_ROUNDS: usize = 3;

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
        // The other tasks are not awaited because they may be stuck.
        watchdog::end("a task panicked", &dir.keep());
    };
    runtime.shutdown_background();
    println!("{report}");
    if options.keep || !report.is_good() {
        println!("histories and logs: {}", dir.keep().display());
    }
    if report.is_good() {
        return ExitCode::SUCCESS;
    }
    println!("to repeat this schedule: {}", options.command());
    ExitCode::FAILURE
}

async fn carry_out(plan: &Plan, dir: &std::path::Path, options: &Options) -> Report {
    let world = World::begin(dir.to_owned(), options).await;
    let mut report = Report::default();
    for (number, round) in plan.0.iter().enumerate() {
        make_faults(&world, round, &mut report).await;
        recover(&world, &format!("after the faults of round {number}"), &mut report).await;
        // Killed in calm, so that the takeover time is measurable.
        let inside = pause_before_write(&world).await;
        let process = inside.unwrap_or(number % PROCESSES);
        kill_clients(&world, process);
        world.clients[process].start();
        report.done(HOLDER_KILLED, inside.is_some());
        let killed = if inside.is_some() { "a holder was" } else { "clients were" };
        recover(&world, &format!("after {killed} killed in calm"), &mut report).await;
        if plan.0.len() > 1 {
            let slot = number % DAEMONS;
            if let Some((daemon, at)) = world.slots[slot].kill() {
                world.recorder.at(at, Event::DaemonDied { daemon });
            }
            if !world.start_daemon(slot).await {
                report.fail(format!("daemon {slot} did not restart"));
            }
            recover(&world, "after a daemon was killed in calm", &mut report).await;
        }
    }
    let still_running = world.end().await;
    for what in still_running.into_iter().chain(world.unexpected_exits()).chain(world.log_errors())
    {
        report.fail(what);
    }
    history::assemble(&world, &mut report);
    if plan.0.len() >= MIN_FULL_ROUNDS {
        report.expect_everything();
    }
    report
}

/// Name under which these kills are counted.
const HOLDER_KILLED: &str = "holder killed in calm";

/// Injects the faults of a round, and waits until they have settled.
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
    world.unexpected_exits().into_iter().for_each(|what| report.fail(what));
    // Replace daemons that exited unexpectedly, so that the run can continue.
    for number in 0..DAEMONS {
        if world.slots[number].number().is_none() {
            world.start_daemon(number).await;
        }
    }
}

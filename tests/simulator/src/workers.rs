//! Runs seeds on several threads.

use std::{
    io::{IsTerminal, Write},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use leasehold_simulator::{
    broken::Broken,
    run::{Run, run as run_seed},
};

/// Range of seeds and limits of a run.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) from: u64,
    pub(crate) seeds: u64,
    pub(crate) time: Option<Duration>,
    pub(crate) threads: usize,
}

/// Runs seeds and passes their results to `take`, in no particular order, until
/// `take` returns false.
#[allow(clippy::disallowed_methods, reason = "the run is limited in real time")]
pub(crate) fn run(limit: &Limit, mutant: Option<Broken>, mut take: impl FnMut(Run) -> bool) {
    let begun = Instant::now();
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let (results, runs) = mpsc::sync_channel(64);
    let shows_progress = std::io::stderr().is_terminal();
    thread::scope(|scope| {
        for _ in 0..limit.threads {
            let (results, next, enough) = (results.clone(), &next, &enough);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let late = limit.time.is_some_and(|time| begun.elapsed() >= time);
                    if number >= limit.seeds || late || enough.load(Relaxed) {
                        return;
                    }
                    if results.send(run_seed(limit.from + number, mutant)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let mut done = 0_u64;
        for run in runs {
            done += 1;
            if !take(run) {
                enough.store(true, Relaxed);
            }
            if shows_progress && done.is_multiple_of(100) {
                let rate = done as f64 / begun.elapsed().as_secs_f64();
                eprint!("\r{done} seeds, {rate:.0} a second ");
                _ = std::io::stderr().flush();
            }
        }
    });
    if shows_progress {
        eprintln!();
    }
}

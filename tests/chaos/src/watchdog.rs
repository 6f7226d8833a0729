//! Watchdog: no process outlives the harness, and the harness has a time limit.
//!
//! Daemons and clients run in separate process groups, so that signals from a
//! terminal do not reach them. They are killed here, paused or not, when the
//! harness is terminated, has panicked, or is stuck.

use std::{
    collections::BTreeSet,
    path::Path,
    process::exit,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use leasehold_runtime::sleep;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::signal::unix::{SignalKind, signal};

static KNOWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn known() -> MutexGuard<'static, BTreeSet<u32>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process that is killed at the end. Holds the lock, so that no
/// process is started without being registered.
pub(crate) fn start<T>(start: impl FnOnce() -> T, pid: impl FnOnce(&T) -> u32) -> T {
    let mut known = known();
    let started = start();
    known.insert(pid(&started));
    started
}

/// Removes a process before it is reaped, because its ID may be reused then.
pub(crate) fn forget(pid: u32) {
    known().remove(&pid);
}

/// Ends the harness on a signal, or after this time.
pub(crate) fn watch(limit: Duration, dir: &Path) {
    let dir = dir.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let why = runtime.block_on(async {
            let [mut terminate, mut interrupt, mut hang_up] =
                [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
                    .map(|kind| signal(kind).unwrap());
            tokio::select! {
                _ = terminate.recv() => "terminated".to_owned(),
                _ = interrupt.recv() => "interrupted".to_owned(),
                _ = hang_up.recv() => "terminal closed".to_owned(),
                () = sleep(limit) => format!("not finished after {} s", limit.as_secs()),
            }
        });
        end(&why, &dir);
    });
}

/// Kills all processes, and exits with a failure.
pub(crate) fn end(why: &str, dir: &Path) -> ! {
    let known = known();
    eprintln!("chaos ends early: {why}\nhistories and logs: {}", dir.display());
    for pid in known.iter() {
        _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
    }
    exit(1)
}

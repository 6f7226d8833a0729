//! Nothing outlives the harness, and the harness does not last for ever.
//!
//! Daemons and clients are in process groups of their own: what a terminal
//! sends to all is not what ends them. They are killed here, stopped or not,
//! whether the harness is told to end, has panicked, or is stuck.

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

/// Starts a process that is killed at the end. Under the lock: nothing is
/// started that the end does not know of.
pub(crate) fn start<T>(start: impl FnOnce() -> T, pid: impl FnOnce(&T) -> u32) -> T {
    let mut known = known();
    let started = start();
    known.insert(pid(&started));
    started
}

/// It is about to be waited for, and its number may be somebody else's then.
pub(crate) fn forget(pid: u32) {
    known().remove(&pid);
}

/// Ends the harness when it was told to, or after this time.
pub(crate) fn watch(limit: Duration, dir: &Path) {
    let dir = dir.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let why = runtime.block_on(async {
            let [mut terminate, mut interrupt, mut hang_up] =
                [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
                    .map(|kind| signal(kind).unwrap());
            tokio::select! {
                _ = terminate.recv() => "it was told to end".to_owned(),
                _ = interrupt.recv() => "it was interrupted".to_owned(),
                _ = hang_up.recv() => "its terminal is gone".to_owned(),
                () = sleep(limit) => format!("it is stuck: not done after {} s", limit.as_secs()),
            }
        });
        end(&why, &dir);
    });
}

/// Kills all that was started, and fails.
pub(crate) fn end(why: &str, dir: &Path) -> ! {
    let known = known();
    eprintln!("chaos ends early: {why}\nhistories and logs: {}", dir.display());
    for pid in known.iter() {
        _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
    }
    exit(1)
}

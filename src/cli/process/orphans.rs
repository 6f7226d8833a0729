//! Reaps untracked children: orphans of the command, and helpers that are not
//! waited for. They would stay as zombies.

use std::{
    collections::BTreeSet,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::sys::{
    prctl,
    wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
};
use tokio::{
    signal::unix::{self, SignalKind},
    sync::Notify,
};

/// Children that other code waits for.
static TRACKED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Notified when a child is untracked, because it may have ended before.
static UNTRACKED: Notify = Notify::const_new();

/// Child that only the owner of this value reaps, until it is dropped.
#[derive(Debug)]
pub(in crate::cli) struct TrackedChild(u32);

impl TrackedChild {
    /// Tracks a child. There must be no `await` since its start, because it would be
    /// reaped if it ended before this call.
    pub(in crate::cli) fn new(child: u32) -> Self {
        tracked().insert(child);
        Self(child)
    }

    pub(in crate::cli) const fn id(&self) -> u32 {
        self.0
    }
}

impl Drop for TrackedChild {
    fn drop(&mut self) {
        tracked().remove(&self.0);
        UNTRACKED.notify_one();
    }
}

fn tracked() -> MutexGuard<'static, BTreeSet<u32>> {
    // A panic can't leave the set half changed.
    TRACKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes orphaned descendants children of this process, instead of the first process of
/// the system. This process can then detect an empty group, because it reaps all
/// members itself.
pub(in crate::cli) fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Reaps untracked children in the background, as long as the runtime lives. From
/// now on, a child whose end matters must be a [`TrackedChild`]. The runtime must be
/// single-threaded.
pub(in crate::cli) fn reap_untracked_children() -> io::Result<()> {
    let mut changes = unix::signal(SignalKind::child())?;
    tokio::spawn(async move {
        loop {
            reap_untracked_now();
            tokio::select! {
                _ = changes.recv() => {}
                () = UNTRACKED.notified() => {}
            }
        }
    });
    Ok(())
}

/// Reaps the untracked children that have ended.
pub(in crate::cli) fn reap_untracked_now() {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    loop {
        let child = match waitid(Id::All, ended | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(child, _) | WaitStatus::Signaled(child, ..)) => child,
            _ => return,
        };
        // The system returns the children behind a tracked one after its reaping.
        if tracked().contains(&child.as_raw().unsigned_abs()) {
            return;
        }
        if waitpid(child, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

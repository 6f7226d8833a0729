//! Children that nobody here waits for: what the command has left behind, and
//! helpers that end on their own. Unless they are reaped, they stay as zombies.

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

/// Children that somebody here waits for.
static AWAITED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Some child is not waited for any more. It may have ended already.
static LET_GO: Notify = Notify::const_new();

/// A child that who has this waits for: nobody else reaps it until this is
/// dropped.
#[derive(Debug)]
pub(in crate::cli) struct Awaited(u32);

impl Awaited {
    /// A child that has just been started. There must be no `await` in between:
    /// it may have ended already.
    pub(in crate::cli) fn new(child: u32) -> Self {
        awaited().insert(child);
        Self(child)
    }

    pub(in crate::cli) const fn id(&self) -> u32 {
        self.0
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        awaited().remove(&self.0);
        LET_GO.notify_one();
    }
}

fn awaited() -> MutexGuard<'static, BTreeSet<u32>> {
    // No change of a set is ever half done.
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, who loses its parent among our descendants becomes our child,
/// as if we were the first process of the system. So we know when all of a
/// group are gone, and do not depend on who else reaps them, or when.
pub(in crate::cli) fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Reaps whoever nobody waits for, as long as the runtime lives. Every child
/// that is started from now on must be [`Awaited`] by who wants to know its
/// end. The runtime must have one thread only.
pub(in crate::cli) fn reap_orphans() -> io::Result<()> {
    let mut changes = unix::signal(SignalKind::child())?;
    tokio::spawn(async move {
        loop {
            reap_strays();
            tokio::select! {
                _ = changes.recv() => {}
                () = LET_GO.notified() => {}
            }
        }
    });
    Ok(())
}

/// Reaps those that have ended by now and that nobody waits for.
pub(in crate::cli) fn reap_strays() {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    loop {
        let child = match waitid(Id::All, ended | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(child, _) | WaitStatus::Signaled(child, ..)) => child,
            _ => return,
        };
        // Those behind it are seen once it has been reaped.
        if awaited().contains(&child.as_raw().unsigned_abs()) {
            return;
        }
        if waitpid(child, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

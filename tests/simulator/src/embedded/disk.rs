//! Disk with one path and all directories that are or were at it. A power
//! failure loses or tears writes that were not synced.

use std::{io, path::Path, time::Duration};

use leasehold_checker::Event;
use leasehold_embedded_store::{Blocking, Completion, Identity, NewState, StateDir};

use crate::{
    daemon,
    sim_state::{count, record, sim},
    world::{Machine, Nanos},
};

/// File contents, and whether they survive a power failure.
#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    synced: bool,
}

/// Directory, as processes see it and as it is after a power failure.
#[derive(Clone, Debug, Default)]
struct Directory {
    state: Option<File>,
    new: Option<File>,
    /// Entry `state` after a power failure.
    durable_state: Option<File>,
    /// Identity of the lock file, and whether it has contents.
    lock: u64,
    marked: bool,
    locked_by: Option<Machine>,
}

/// Step of a write after which a daemon can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `state.new` is written.
    Written,
    /// `state.new` is synced.
    Synced,
    /// `state.new` is renamed to `state`.
    Renamed,
}

/// Kill that is due when the next write reaches this step.
#[derive(Clone, Copy, Debug)]
pub struct PendingCrash {
    /// Step of the write.
    pub step: Step,
    /// True if the power fails as well.
    pub power: bool,
    /// Time until the daemon is started again.
    pub down: u64,
}

/// Simulated disk.
#[derive(Debug, Default)]
pub struct Disk {
    /// All directories that ever existed.
    directories: Vec<Directory>,
    /// Index of the directory at the path.
    at_path: Option<usize>,
    locks: u64,
    /// Number of active faults that fill the disk.
    pub full: u32,
    /// Pending kill.
    pub pending_crash: Option<PendingCrash>,
    /// Daemon killed by a pending crash: its later calls fail.
    dead: Option<u32>,
    /// Backup of the directory.
    copy: Option<Directory>,
    /// Set while the next daemon may have no record of earlier holds, because
    /// an operator changed the directory: the latest end of such holds.
    pub forgotten_until: Option<Nanos>,
    /// True after a start that failed because of the directory's contents.
    pub is_unusable: bool,
}

impl Disk {
    /// Locks the directory at the path for a process, and creates it if it is
    /// missing. Returns `None` if another process holds the lock.
    pub fn open(&mut self, daemon: u32, machine: Machine) -> Option<SimDir> {
        let at = match self.at_path {
            Some(at) => at,
            None => {
                let lock = self.next_lock();
                self.directories.push(Directory { lock, ..Directory::default() });
                self.directories.len() - 1
            }
        };
        self.at_path = Some(at);
        let directory = &mut self.directories[at];
        let is_alive = |by: &Machine| sim().world.is_alive(*by);
        if directory.locked_by.as_ref().is_some_and(is_alive) {
            return None;
        }
        directory.locked_by = Some(machine);
        Some(SimDir { at, lock: directory.lock, daemon })
    }

    fn next_lock(&mut self) -> u64 {
        self.locks += 1;
        self.locks
    }

    /// Moves the directory away or deletes it. Holds recorded in it may last
    /// until `until`.
    pub fn remove(&mut self, until: Nanos) {
        self.at_path = None;
        self.forget(until);
    }

    fn forget(&mut self, until: Nanos) {
        self.forgotten_until = self.forgotten_until.max(Some(until));
    }

    /// Deletes the lock file. The next daemon creates a new one.
    pub fn remove_lock(&mut self) {
        let lock = self.next_lock();
        if let Some(at) = self.at_path {
            let directory = &mut self.directories[at];
            (directory.lock, directory.marked, directory.locked_by) = (lock, false, None);
        }
    }

    /// Copies the directory.
    pub fn back_up(&mut self) {
        self.copy = self.at_path.map(|at| self.directories[at].clone());
    }

    /// Restores the backup; returns false if there is none. Unrecorded holds
    /// may last until `until`.
    pub fn restore(&mut self, until: Nanos) -> bool {
        let Some(mut copy) = self.copy.clone() else { return false };
        copy.lock = self.next_lock();
        copy.locked_by = None;
        self.directories.push(copy);
        self.at_path = Some(self.directories.len() - 1);
        self.forget(until);
        true
    }

    /// Loses, keeps or tears each unsynced write.
    pub fn fail_power(&mut self) {
        count("disk: power failed");
        let sim = sim();
        let mut rng = sim.rng.borrow_mut();
        for directory in &mut self.directories {
            directory.new = None;
            if rng.permille(500) {
                directory.state.clone_from(&directory.durable_state);
            }
            if let Some(file) = directory.state.as_mut().filter(|file| !file.synced) {
                let kept = rng.index(file.bytes.len());
                file.bytes.truncate(kept);
                file.synced = true;
            }
            directory.durable_state.clone_from(&directory.state);
        }
    }
}

fn with_disk<T>(act: impl FnOnce(&mut Disk) -> T) -> T {
    act(&mut sim().disk.borrow_mut())
}

/// Directory locked by a process.
#[derive(Clone, Debug)]
pub struct SimDir {
    at: usize,
    lock: u64,
    daemon: u32,
}

impl SimDir {
    /// Returns the directory that is at the path now, instead of the locked one.
    #[must_use]
    pub fn at_path(&self) -> Self {
        let at = with_disk(|disk| disk.at_path);
        Self { at: at.unwrap_or(self.at), ..self.clone() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Directory) -> T) -> io::Result<T> {
        with_disk(|disk| {
            if disk.dead == Some(self.daemon) {
                return Err(io::Error::other("the process was killed"));
            }
            Ok(act(&mut disk.directories[self.at]))
        })
    }

    /// Kills the daemon if its pending crash is due in this step.
    fn passes(&self, step: Step) {
        let pending_crash = with_disk(|disk| {
            let pending_crash =
                disk.pending_crash.take_if(|pending_crash| pending_crash.step == step)?;
            disk.dead = Some(self.daemon);
            Some(pending_crash)
        });
        if let Some(PendingCrash { power, down, .. }) = pending_crash {
            count("disk: daemon killed during a write");
            sim().world.after(0, move || {
                if power {
                    with_disk(Disk::fail_power);
                }
                daemon::crash(0, Some(down));
            });
        }
    }
}

/// File `state.new` of a directory.
struct New(SimDir);

impl NewState for New {
    fn sync(&self) -> io::Result<()> {
        self.0.with(|directory| {
            if let Some(new) = &mut directory.new {
                new.synced = true;
            }
        })?;
        self.0.passes(Step::Synced);
        Ok(())
    }
}

impl StateDir for SimDir {
    fn path(&self) -> &Path {
        Path::new("data")
    }

    fn identity(&self) -> io::Result<Identity> {
        let lock = self.with(|directory| directory.lock)?;
        Ok(match with_disk(|disk| disk.at_path) {
            at if at != Some(self.at) => Identity::DirectoryChanged,
            _ if lock != self.lock => Identity::LockFileChanged,
            _ => Identity::Same,
        })
    }

    fn is_marked(&self) -> bool {
        self.with(|directory| directory.marked).unwrap_or(false)
    }

    fn mark(&self) -> io::Result<()> {
        self.with(|directory| directory.marked = true)
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        self.with(|directory| directory.state.as_ref().map(|file| file.bytes.clone()))
    }

    fn write_new(&self, contents: &[u8]) -> io::Result<Box<dyn NewState>> {
        if with_disk(|disk| disk.full > 0) {
            count("disk: full");
            return Err(io::ErrorKind::StorageFull.into());
        }
        let new = File { bytes: contents.to_vec(), synced: false };
        self.with(|directory| directory.new = Some(new))?;
        self.passes(Step::Written);
        Ok(Box::new(New(self.clone())))
    }

    fn rename_new(&self) -> io::Result<()> {
        let renamed = self.with(|directory| {
            let new = directory.new.take();
            let found = new.is_some();
            directory.state = new.or(directory.state.take());
            found
        })?;
        self.passes(Step::Renamed);
        if renamed { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn sync(&self) -> io::Result<()> {
        let durable = self.with(|directory| {
            directory.durable_state.clone_from(&directory.state);
            let state = directory.state.as_ref()?;
            highest_token(&state.bytes).filter(|_| state.synced)
        })?;
        if let Some(last) = durable {
            record(Event::Reserved { daemon: self.daemon, last });
        }
        Ok(())
    }

    fn run(&self, work: Blocking) -> Completion {
        let (before, after) = {
            let sim = sim();
            let mut rng = sim.rng.borrow_mut();
            let max_delay = *rng.pick(&[1, 1, 5, 50]);
            (rng.length(0..max_delay), rng.length(0..max_delay))
        };
        Box::pin(async move {
            sleep(before).await;
            work();
            sleep(after).await;
        })
    }
}

async fn sleep(length: Duration) {
    leasehold_runtime::sleep(length).await;
}

/// Returns the highest token that a state file reserves.
fn highest_token(state: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(state).ok()?;
    text.lines().find_map(|line| line.strip_prefix("highest-token "))?.parse().ok()
}

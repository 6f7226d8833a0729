//! Directories that break one rule of the embedded store.

use std::{io, path::Path, sync::Arc};

use leasehold_embedded_store::{Blocking, Completion, Identity, NewState, StateDir};

use super::disk::SimDir;
use crate::{
    broken::{Wrapped, is},
    sim_state::sim,
};

/// Wraps a directory with the defect of the active mutant.
#[must_use]
pub fn wrap(directory: SimDir) -> Arc<dyn StateDir> {
    Arc::new(BrokenDir(directory))
}

/// Directory that breaks one rule.
struct BrokenDir(SimDir);

impl BrokenDir {
    /// Returns the directory that writes go to.
    fn target(&self) -> SimDir {
        if is(Wrapped::WriteByPath) { self.0.at_path() } else { self.0.clone() }
    }
}

/// File whose sync does nothing.
struct Unsynced;

impl NewState for Unsynced {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl StateDir for BrokenDir {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn identity(&self) -> io::Result<Identity> {
        if is(Wrapped::WriteByPath) || is(Wrapped::IdentityUnchecked) {
            return Ok(Identity::Same);
        }
        self.0.identity()
    }

    fn is_marked(&self) -> bool {
        self.0.is_marked()
    }

    fn mark(&self) -> io::Result<()> {
        self.0.mark()
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let found = self.0.read()?;
        Ok(if is(Wrapped::NoCrashWait) {
            found.map(|state| edit(&state, "stopped-cleanly", "true"))
        } else if is(Wrapped::HighestTokenIgnored) {
            found.map(|state| edit(&state, "highest-token", "1"))
        } else {
            found
        })
    }

    fn write_new(&self, contents: &[u8]) -> io::Result<Box<dyn NewState>> {
        if is(Wrapped::TtlNotRecorded) {
            return self.0.write_new(&edit(contents, "longest-ttl-ms", "0"));
        }
        let new = self.target().write_new(contents)?;
        Ok(if is(Wrapped::FileNotSynced) { Box::new(Unsynced) } else { new })
    }

    fn rename_new(&self) -> io::Result<()> {
        if is(Wrapped::ReservedLate) {
            let directory = self.0.clone();
            let delay = sim().rng.borrow_mut().millis(1..2000);
            sim().world.after(delay, move || {
                // Fails if the process has exited or a later write came first.
                if directory.rename_new().is_ok() {
                    _ = directory.sync();
                }
            });
            return Ok(());
        }
        self.target().rename_new()
    }

    fn sync(&self) -> io::Result<()> {
        // The first state is synced: otherwise the daemon could not start.
        let later = is(Wrapped::DirectoryNotSynced) && self.is_marked();
        if later || is(Wrapped::ReservedLate) {
            return Ok(());
        }
        self.target().sync()
    }

    fn run(&self, work: Blocking) -> Completion {
        self.0.run(work)
    }
}

/// Changes a value of a state file and updates its checksum.
fn edit(state: &[u8], key: &str, value: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(state);
    let mut body = String::new();
    for line in text.lines().filter(|line| !line.starts_with("crc32 ")) {
        match line.strip_prefix(key) {
            Some(_) => body.push_str(&format!("{key} {value}\n")),
            None => body.push_str(&format!("{line}\n")),
        }
    }
    let sum = crc32fast::hash(body.as_bytes());
    format!("{body}crc32 {sum:08x}\n").into_bytes()
}

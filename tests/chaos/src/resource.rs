//! Protected resources: for each lock a counter in a file, once with a fence
//! and once without.
//!
//! A client reads the counter, waits, and writes the incremented value. An
//! update is lost if two clients do so at the same time. The fenced file checks
//! the token of each access, reads included, and refuses a token lower than the
//! highest one seen; the other file relies on the lock alone.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use leasehold_time::Moment;

/// Contents of a file: text of constant length, written in one call, so that a
/// kill can't tear it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Highest token seen.
    pub(crate) highest_token: u64,
    /// Counter that clients write.
    pub(crate) counter: u64,
    /// Number of accepted writes, counted by the file itself.
    pub(crate) writes: u64,
    /// Number of accepted writes over a value that the writer had not read.
    pub(crate) overwritten: u64,
    /// Number of accesses refused because of a low token.
    pub(crate) refused: u64,
}

impl State {
    /// Returns the number of accepted updates that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.writes.saturating_sub(self.counter)
    }

    fn read(text: &str) -> Self {
        let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            highest_token: next(),
            counter: next(),
            writes: next(),
            overwritten: next(),
            refused: next(),
        }
    }

    fn text(&self) -> String {
        let Self { highest_token, counter, writes, overwritten, refused } = self;
        format!("{highest_token:>20} {counter:>20} {writes:>20} {overwritten:>20} {refused:>20}\n")
    }

    fn check_token(&mut self, token: u64, fence: bool) -> Result<(), Stale> {
        if token < self.highest_token && fence {
            self.refused += 1;
            return Err(Stale);
        }
        self.highest_token = self.highest_token.max(token);
        Ok(())
    }

    fn write(&mut self, read: u64) {
        self.overwritten += u64::from(self.counter != read);
        self.counter = read + 1;
        self.writes += 1;
    }
}

/// Error: a higher token was seen.
#[derive(Debug)]
pub(crate) struct Stale;

/// File of a resource.
pub(crate) struct Resource {
    file: File,
    /// True if tokens are checked.
    fence: bool,
}

impl Resource {
    /// Opens the fenced file; without `fence`, it accepts any token.
    pub(crate) fn fenced(dir: &Path, lock: u32, fence: bool) -> Self {
        Self::open(&dir.join(format!("fenced-{lock}")), fence)
    }

    pub(crate) fn unfenced(dir: &Path, lock: u32) -> Self {
        Self::open(&dir.join(format!("unfenced-{lock}")), false)
    }

    fn open(path: &Path, fence: bool) -> Self {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        Self { file: options.open(path).unwrap(), fence }
    }

    /// Returns the counter and the time of the read.
    pub(crate) fn read_fenced(&self, token: u64) -> (Moment, Result<u64, Stale>) {
        self.access(|state| state.check_token(token, self.fence).map(|()| state.counter))
    }

    /// Writes the incremented counter.
    pub(crate) fn write_fenced(&self, token: u64, read: u64) -> (Moment, Result<(), Stale>) {
        self.access(|state| state.check_token(token, self.fence).map(|()| state.write(read)))
    }

    pub(crate) fn read_unfenced(&self) -> u64 {
        self.access(|state| state.counter).1
    }

    pub(crate) fn write_unfenced(&self, read: u64) -> Moment {
        self.access(|state| state.write(read)).0
    }

    pub(crate) fn state(&self) -> State {
        self.access(|state| *state).1
    }

    /// Accesses the file under the operating system's lock. The time is taken
    /// under that lock, so that accesses are recorded in the order in which
    /// they took effect, even if a process is paused before it records them.
    fn access<T>(&self, change: impl FnOnce(&mut State) -> T) -> (Moment, T) {
        self.file.lock().unwrap();
        let mut text = [0; 105];
        let length = self.file.read_at(&mut text, 0).unwrap();
        let before = State::read(std::str::from_utf8(&text[..length]).unwrap());
        let mut state = before;
        let result = change(&mut state);
        let at = Moment::now();
        if state != before {
            self.file.write_all_at(state.text().as_bytes(), 0).unwrap();
        }
        self.file.unlock().unwrap();
        (at, result)
    }
}

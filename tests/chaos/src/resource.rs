//! What the locks protect: for each a counter in a file, once with a fence and
//! once without.
//!
//! Who uses it reads the counter, takes its time, and writes back one more. So
//! an update is lost if two do that at a time. The fenced file is told the
//! token with each access, reads included, and refuses a token that is lower
//! than one that it was told before; the other one trusts the lock alone.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use leasehold_time::Moment;

/// What is in a file: as text, in one write of always the same length, so that
/// a kill can't tear it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The greatest token that was ever shown; none of them is lower.
    pub(crate) greatest: u64,
    /// What its users wrote.
    pub(crate) counter: u64,
    /// How many writes were accepted, counted by the file itself.
    pub(crate) writes: u64,
    /// How many of them wrote over what their writer had not read.
    pub(crate) overwritten: u64,
    /// How many accesses were refused for a token that was too low.
    pub(crate) refused: u64,
}

impl State {
    /// Updates that were accepted and are not there any more.
    pub(crate) fn lost(&self) -> u64 {
        self.writes.saturating_sub(self.counter)
    }

    fn read(text: &str) -> Self {
        let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            greatest: next(),
            counter: next(),
            writes: next(),
            overwritten: next(),
            refused: next(),
        }
    }

    fn text(&self) -> String {
        let Self { greatest, counter, writes, overwritten, refused } = self;
        format!("{greatest:>20} {counter:>20} {writes:>20} {overwritten:>20} {refused:>20}\n")
    }

    fn shown(&mut self, token: u64, fence: bool) -> Result<(), Stale> {
        if token < self.greatest && fence {
            self.refused += 1;
            return Err(Stale);
        }
        self.greatest = self.greatest.max(token);
        Ok(())
    }

    fn write(&mut self, read: u64) {
        self.overwritten += u64::from(self.counter != read);
        self.counter = read + 1;
        self.writes += 1;
    }
}

/// A greater token was seen.
#[derive(Debug)]
pub(crate) struct Stale;

/// One of the files.
pub(crate) struct Resource {
    file: File,
    /// Whether tokens are looked at.
    fence: bool,
}

impl Resource {
    /// Without `fence` it only looks like one.
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

    /// Reads the counter, and says when that was.
    pub(crate) fn read_fenced(&self, token: u64) -> (Moment, Result<u64, Stale>) {
        self.access(|state| state.shown(token, self.fence).map(|()| state.counter))
    }

    /// Writes one more than what was read.
    pub(crate) fn write_fenced(&self, token: u64, read: u64) -> (Moment, Result<(), Stale>) {
        self.access(|state| state.shown(token, self.fence).map(|()| state.write(read)))
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

    /// Under the operating system's lock. The moment is taken inside of it: so
    /// accesses are recorded in the order in which they took effect, even if
    /// their processes are stopped before they have written that down.
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

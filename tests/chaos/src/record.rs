//! Recordings: each process writes its own, and they are merged into one
//! history.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold_checker::{Entry, Event, Nanos};
use leasehold_time::Moment;

/// File extension of recordings.
const EXTENSION: &str = "events";

/// Recording of one process. Each line is a single write, so that a kill loses
/// at most the last one and other lines stay complete.
pub(crate) struct Recorder(File);

impl Recorder {
    pub(crate) fn create(dir: &Path, name: &str) -> Self {
        let path = dir.join(name).with_extension(EXTENSION);
        Self(OpenOptions::new().create_new(true).append(true).open(path).unwrap())
    }

    /// Records an event that happens now.
    pub(crate) fn now(&self, event: Event) {
        self.at(Moment::now(), event);
    }

    /// Records an event that happened at this moment.
    pub(crate) fn at(&self, at: Moment, event: Event) {
        let mut line = serde_json::to_vec(&Entry { at: nanos(at), event }).unwrap();
        line.push(b'\n');
        (&self.0).write_all(&line).unwrap();
    }
}

/// Returns the nanoseconds of a moment, on the clock that all processes of the
/// machine share.
pub(crate) fn nanos(at: Moment) -> Nanos {
    Nanos::try_from(at.since(Moment::from_boot(Duration::ZERO)).as_nanos()).unwrap()
}

/// Reader of recordings that are still being written.
#[derive(Default)]
pub(crate) struct Reader(Vec<(PathBuf, usize)>);

impl Reader {
    /// Returns the entries that were added since the last call, in no
    /// particular order.
    pub(crate) fn new_entries(&mut self, dir: &Path) -> Vec<Entry> {
        let mut new_entries = Vec::new();
        for path in recordings(dir) {
            let index = self.0.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
                self.0.push((path.clone(), 0));
                self.0.len() - 1
            });
            let read = &mut self.0[index].1;
            let recording = fs::read(&path).unwrap();
            // A last line without an end was cut off by a kill, or is still
            // being written.
            let complete =
                recording.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            for line in recording[*read..complete].split(|byte| *byte == b'\n') {
                if !line.is_empty() {
                    new_entries.push(serde_json::from_slice(line).unwrap());
                }
            }
            *read = complete;
        }
        new_entries
    }
}

/// Merges all recordings in order, with times relative to `start`.
pub(crate) fn merge(dir: &Path, more: Vec<Entry>, start: Moment) -> Vec<Entry> {
    let mut entries = Reader::default().new_entries(dir);
    entries.extend(more);
    // The sort is stable: events of one process at the same moment keep their
    // order.
    entries.sort_by_key(|entry| entry.at);
    let start = nanos(start);
    for entry in &mut entries {
        entry.at = entry.at.saturating_sub(start);
        if let Event::Valid { until, .. } | Event::Overruled { until, .. } = &mut entry.event {
            *until = until.saturating_sub(start);
        }
    }
    entries
}

fn recordings(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let mut recordings: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .collect();
    recordings.sort();
    recordings
}

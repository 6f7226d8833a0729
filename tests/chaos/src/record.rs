//! What happened, as each process writes it down for itself, and how the pages
//! become one history.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold_checker::{Entry, Event, Nanos};
use leasehold_time::Moment;

/// What the names of pages end with.
const PAGE: &str = "page";

/// One process's page. Each line is one write, so that a kill loses at most
/// the last one, and what others wrote stays whole.
pub(crate) struct Recorder(File);

impl Recorder {
    pub(crate) fn create(dir: &Path, name: &str) -> Self {
        let path = dir.join(name).with_extension(PAGE);
        Self(OpenOptions::new().create_new(true).append(true).open(path).unwrap())
    }

    /// Something that happens now.
    pub(crate) fn now(&self, event: Event) {
        self.then(Moment::now(), event);
    }

    /// Something that happened at a moment that was noted.
    pub(crate) fn then(&self, at: Moment, event: Event) {
        let mut line = serde_json::to_vec(&Entry { at: nanos(at), event }).unwrap();
        line.push(b'\n');
        (&self.0).write_all(&line).unwrap();
    }
}

/// As it is written: on the clock that all processes of the machine share.
pub(crate) fn nanos(at: Moment) -> Nanos {
    Nanos::try_from(at.since(Moment::from_boot(Duration::ZERO)).as_nanos()).unwrap()
}

/// Reads pages while they are being written.
#[derive(Default)]
pub(crate) struct Reader(Vec<(PathBuf, usize)>);

impl Reader {
    /// What was added since the last call, by no means in order.
    pub(crate) fn news(&mut self, dir: &Path) -> Vec<Entry> {
        let mut news = Vec::new();
        for path in pages(dir) {
            let index = self.0.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
                self.0.push((path.clone(), 0));
                self.0.len() - 1
            });
            let read = &mut self.0[index].1;
            let page = fs::read(&path).unwrap();
            // What has no end yet was cut off by a kill, or is still to come.
            let whole = page.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            for line in page[*read..whole].split(|byte| *byte == b'\n') {
                if !line.is_empty() {
                    news.push(serde_json::from_slice(line).unwrap());
                }
            }
            *read = whole;
        }
        news
    }
}

/// All pages as one, in order, with times that count from `start`.
pub(crate) fn merge(dir: &Path, more: Vec<Entry>, start: Moment) -> Vec<Entry> {
    let mut entries = Reader::default().news(dir);
    entries.extend(more);
    // Stable: what one process wrote of the same moment stays in its order.
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

fn pages(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let mut pages: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == PAGE)).collect();
    pages.sort();
    pages
}

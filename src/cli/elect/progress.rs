//! A file that a command touches to show that it is not stuck.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::cli::{exit::FAILED, exit::Failure, output::length};
use leasehold_time::{Entropy, Moment};

/// An empty file of its own for each term. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct ProgressFile {
    path: PathBuf,
    within: Duration,
}

/// What changes when the file is touched, written or replaced.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Trace {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Some(Self { inode: file.ino(), size: file.size(), modified })
    }
}

impl ProgressFile {
    pub(super) fn create(within: Duration) -> Result<Self, Failure> {
        let name = format!("leasehold-progress-{:032x}", Entropy::system()?.bits());
        let path = std::env::temp_dir().join(name);
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match created {
            Ok(_) => Ok(Self { path, within }),
            Err(error) => {
                let message = format!(
                    "can't create {}, which --progress-timeout needs: {error}; set TMPDIR to a \
                     directory that can be written",
                    path.display()
                );
                Err(Failure::new(FAILED, "progress_file", message))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until it has not been touched for too long; says so, for people.
    pub(super) async fn stuck(&self) -> String {
        let every = (self.within / 10).min(Duration::from_secs(1));
        let mut pulse = (Trace::of(&self.path), Moment::now());
        loop {
            leasehold_runtime::sleep(every).await;
            // First a look, then the judgement: we may have stood still, and
            // the command not.
            let (trace, now) = (Trace::of(&self.path), Moment::now());
            if trace.is_some() && trace != pulse.0 {
                pulse = (trace, now);
            } else if now >= pulse.1 + self.within {
                return format!(
                    "the command is stuck: it has not touched LEASEHOLD_PROGRESS_FILE for {}",
                    length(now.since(pulse.1))
                );
            }
        }
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_show_progress_leaves_a_trace() {
        let file = ProgressFile::create(Duration::from_secs(1)).unwrap();
        let path = file.path().to_owned();
        let first = Trace::of(&path).unwrap();
        assert_eq!(Trace::of(&path).unwrap(), first);
        fs::write(&path, "1").unwrap();
        let written = Trace::of(&path).unwrap();
        assert_ne!(written, first);
        let other = path.with_extension("new");
        fs::write(&other, "2").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_ne!(Trace::of(&path).unwrap(), written);
        drop(file);
        assert_eq!(Trace::of(&path), None);
    }
}

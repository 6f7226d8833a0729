//! File that a command touches to report progress.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::cli::{exit::FAILED, exit::Failure, output::short_duration};
use leasehold_time::{Entropy, Moment};

/// Progress file of one term. It is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ProgressFile {
    path: PathBuf,
    timeout: Duration,
}

/// Properties of the file. At least one changes when the file is touched, written or
/// replaced.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Some(Self { inode: file.ino(), size: file.size(), modified })
    }
}

impl ProgressFile {
    pub(super) fn create(timeout: Duration) -> Result<Self, Failure> {
        let name = format!("leasehold-progress-{:032x}", Entropy::system()?.bits());
        let path = std::env::temp_dir().join(name);
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match created {
            Ok(_) => Ok(Self { path, timeout }),
            Err(error) => {
                let message = format!(
                    "can't create {}, which --progress-timeout needs: {error}; set TMPDIR to a \
                     writable directory",
                    path.display()
                );
                Err(Failure::new(FAILED, "progress_file", message))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file has not been touched for the timeout, and returns the cause
    /// as text.
    pub(super) async fn stuck(&self) -> String {
        let interval = (self.timeout / 10).min(Duration::from_secs(1));
        let (mut last, mut changed_at) = (FileState::of(&self.path), Moment::now());
        loop {
            leasehold_runtime::sleep(interval).await;
            // A change counts even after the timeout: this process may have been paused
            // while the command ran.
            let (state, now) = (FileState::of(&self.path), Moment::now());
            if state.is_some() && state != last {
                (last, changed_at) = (state, now);
            } else if now >= changed_at + self.timeout {
                return format!(
                    "the command is stuck: it has not touched LEASEHOLD_PROGRESS_FILE for {}",
                    short_duration(now.since(changed_at))
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
    fn each_kind_of_progress_changes_file_state() {
        let file = ProgressFile::create(Duration::from_secs(1)).unwrap();
        let path = file.path().to_owned();
        let first = FileState::of(&path).unwrap();
        assert_eq!(FileState::of(&path).unwrap(), first);
        fs::write(&path, "1").unwrap();
        let written = FileState::of(&path).unwrap();
        assert_ne!(written, first);
        let other = path.with_extension("new");
        fs::write(&other, "2").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_ne!(FileState::of(&path).unwrap(), written);
        drop(file);
        assert_eq!(FileState::of(&path), None);
    }
}

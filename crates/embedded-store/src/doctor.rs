//! Doctor of the embedded store: checks a data directory as `serve` does at its
//! start.

use std::{fs, path::Path};

use super::{
    OpenError,
    data_dir::DataDir,
    directory::{self, StateDir, failed},
    record::Record,
};
use leasehold_store::finding::{Finding, Report};

const CHECK: &str = "data directory";
const LAST_STOP: &str = "last stop";

const FIX: &str = "Free up space, give the daemon's user write access, or choose another \
                      directory with --data-dir";

/// Checks a data directory without changing its state. Does not touch a directory
/// that a daemon uses, and does not create a missing one.
#[must_use]
pub fn diagnose(path: &Path) -> Report {
    let mut report = Report::default();
    if path.symlink_metadata().is_ok() {
        diagnose_existing(path, &mut report);
    } else {
        report.add(diagnose_absent(path));
    }
    report
}

/// Creates a directory next to the missing one, uses it as `serve` would, and
/// removes it.
fn diagnose_absent(path: &Path) -> Finding {
    let ancestors = path.ancestors().skip(1).filter(|level| !level.as_os_str().is_empty());
    let parent = ancestors.into_iter().find(|level| level.symlink_metadata().is_ok());
    let parent = parent.unwrap_or(Path::new("."));
    let missing = path.strip_prefix(parent).unwrap_or(path);
    let scratch = parent.join(format!(".leasehold-doctor-{}", std::process::id()));
    let used = fs::create_dir(&scratch)
        .map_err(failed("create the data directory", path))
        .and_then(|()| DataDir::open(&scratch.join(missing)))
        .and_then(|directory| try_write(&directory));
    let removed = fs::remove_dir_all(&scratch);
    if let Err(OpenError::Io { source, .. }) = &used {
        let text = format!("can't create {}: {source}", path.display());
        return Finding::failed(CHECK, text).fix(FIX);
    }
    if let Err(error) = used {
        return Finding::failed(CHECK, error.to_string());
    }
    match removed {
        Ok(()) => {
            Finding::ok(CHECK, format!("{} does not exist; serve creates it", path.display()))
        }
        Err(error) => {
            let text = format!("can't remove {} after the check: {error}", scratch.display());
            Finding::warning(CHECK, text).fix("Remove that directory")
        }
    }
}

fn diagnose_existing(path: &Path, report: &mut Report) {
    let path_text = path.display();
    let opened = DataDir::open(path).and_then(|directory| {
        let found = directory::read(&directory)?;
        Ok((directory, found))
    });
    let (directory, found) = match opened {
        Ok(opened) => opened,
        Err(OpenError::InUse { pid, .. }) => {
            let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            let text =
                format!("{path_text} is in use by a daemon{pid}; another one can't be started");
            return report.add(Finding::note(CHECK, text));
        }
        Err(OpenError::NotDirectory { .. }) => {
            let text = format!("{path_text} is not a directory");
            return report.add(Finding::failed(CHECK, text).fix("Choose another with --data-dir"));
        }
        Err(error @ OpenError::Io { .. }) => {
            return report.add(Finding::failed(CHECK, error.to_string()).fix(FIX));
        }
        Err(error) => return report.add(Finding::failed(CHECK, error.to_string())),
    };
    if let Err(error) = try_write(&directory) {
        return report.add(Finding::failed(CHECK, error.to_string()).fix(FIX));
    }
    drop(directory);
    report.add(Finding::ok(CHECK, format!("{path_text} is readable and writable")));
    report.add(match found {
        None => Finding::ok(LAST_STOP, "none yet: no daemon has used the directory"),
        Some(record) if record.clean => Finding::ok(LAST_STOP, "clean"),
        Some(record) => {
            let wait = humantime::format_duration(record.max_ttl);
            Finding::note(LAST_STOP, format!("unclean: the next start grants no locks for {wait}"))
        }
    });
}

/// Writes a state as `serve` does, up to the rename, and removes it.
fn try_write(directory: &DataDir) -> Result<(), OpenError> {
    let new = directory.path().join(directory::STATE_NEW);
    let record = Record { highest_token: 0, max_ttl: Default::default(), clean: false };
    let written = directory.write_new(record.encode().as_bytes()).and_then(|file| file.sync());
    let removed = directory.remove_new();
    written.map_err(failed("write", &new))?;
    removed.map_err(failed("remove", &new))?;
    directory.sync().map_err(failed("sync", directory.path()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Embedded;
    use leasehold_store::{LeaseStore, finding::CheckStatus};

    fn statuses(report: &Report) -> Vec<CheckStatus> {
        report.findings().iter().map(|finding| finding.status).collect()
    }

    #[test]
    fn absent_directory_is_checked_but_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert_eq!(statuses(&diagnose(&path)), [CheckStatus::Ok]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::write(dir.path().join("a"), "").unwrap();
        let report = diagnose(&path);
        assert_eq!(statuses(&report), [CheckStatus::Failed]);
        assert!(report.failure().unwrap().contains("Not a directory"), "{report:?}");
    }

    #[tokio::test]
    async fn diagnosis_does_not_change_state_or_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let state = || fs::read(dir.path().join("state")).unwrap();
        assert_eq!(statuses(&diagnose(dir.path())), [CheckStatus::Ok, CheckStatus::Ok]);

        let daemon = Embedded::open(dir.path()).unwrap();
        let before = state();
        let report = diagnose(dir.path());
        assert_eq!(statuses(&report), [CheckStatus::Note]);
        let pid = format!("(pid {})", std::process::id());
        assert!(report.findings()[0].text.contains(&pid), "{report:?}");
        assert_eq!(state(), before);

        daemon.close().await.unwrap();
        drop(daemon);
        let report = diagnose(dir.path());
        assert_eq!(report.findings()[1].text, "clean");

        let daemon = Embedded::open(dir.path()).unwrap();
        daemon.persist_ttl(Duration::from_secs(7)).await.unwrap();
        let before = state();
        drop(daemon);
        let report = diagnose(dir.path());
        assert_eq!(statuses(&report), [CheckStatus::Ok, CheckStatus::Note]);
        assert!(report.findings()[1].text.ends_with("grants no locks for 7s"), "{report:?}");
        assert_eq!(state(), before);
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["lock", "state"]);
    }

    /// The check has to try: for root, `access` reports that `/proc` is writable.
    #[cfg(target_os = "linux")]
    #[test]
    fn directory_that_serve_cannot_create_fails() {
        for path in ["/proc/x", "/proc/x/y", "/dev/null/x"].map(Path::new) {
            assert!(Embedded::open(path).is_err());
            let report = diagnose(path);
            assert_eq!(statuses(&report), [CheckStatus::Failed], "{report:?}");
        }
    }

    #[test]
    fn state_that_serve_cannot_write_fails() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("state.new")).unwrap();
        assert!(Embedded::open(dir.path()).is_err());
        assert_eq!(statuses(&diagnose(dir.path())), [CheckStatus::Failed]);
    }

    #[test]
    fn corrupt_state_fails() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("state"), "garbage").unwrap();
        let report = diagnose(dir.path());
        assert_eq!(statuses(&report), [CheckStatus::Failed]);
        assert!(report.failure().unwrap().contains("is corrupt"), "{report:?}");
    }
}

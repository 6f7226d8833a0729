//! Whether a data directory can be used: what `serve` would find there.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use nix::unistd::{AccessFlags, access};

use super::{OpenError, directory::Directory};
use crate::lease::finding::{Finding, Report};

const CHECK: &str = "data directory";

/// Looks at a data directory without reserving an epoch. Nothing is changed if
/// a daemon uses it, or if it is not there.
#[must_use]
pub fn examine(path: &Path) -> Report {
    let mut report = Report::default();
    if path.exists() {
        look(path, &mut report);
    } else {
        report.add(absent(path));
    }
    report
}

/// `serve` creates it, if it may.
fn absent(path: &Path) -> Finding {
    let there =
        path.ancestors().skip(1).find(|level| level.exists() || level.as_os_str().is_empty());
    let there = match there {
        Some(level) if !level.as_os_str().is_empty() => level,
        _ => Path::new("."),
    };
    let (shown, parent) = (path.display(), there.display());
    match access(&there.join("."), AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Finding::ok(CHECK, format!("{shown} is not there yet; a daemon creates it")),
        Err(error) => Finding::failed(
            CHECK,
            format!("{shown} is not there, and can't be created in {parent}: {}", error.desc()),
        )
        .remedy("Let the daemon's user write there, or choose another directory with data_dir"),
    }
}

fn look(path: &Path, report: &mut Report) {
    let shown = path.display();
    let (directory, found) = match Directory::open(path) {
        Ok(opened) => opened,
        Err(OpenError::InUse { pid, .. }) => {
            let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            let text = format!("{shown} is in use by a daemon{pid}; a second one can't start");
            return report.add(Finding::note(CHECK, text));
        }
        Err(error) => return report.add(Finding::failed(CHECK, error.to_string())),
    };
    if let Err(error) = try_write(path) {
        let text = format!("{shown} can't be written to: {error}");
        return report.add(Finding::failed(CHECK, text).remedy(
            "Make room, let the daemon's user write there, or choose another directory with \
             data_dir",
        ));
    }
    drop(directory);
    report.add(Finding::ok(CHECK, format!("{shown} can be read and written")));
    report.add(match found {
        None => Finding::ok(LAST_STOP, "none yet: no daemon has used the directory"),
        Some(record) if record.clean => Finding::ok(LAST_STOP, "clean"),
        Some(record) => {
            let wait = humantime::format_duration(record.longest_ttl);
            Finding::note(
                LAST_STOP,
                format!("not clean: after the next start nothing is granted for {wait}"),
            )
        }
    });
}

const LAST_STOP: &str = "last stop";

/// As much as the state's file takes, and more.
fn try_write(path: &Path) -> io::Result<()> {
    let probe = path.join("check");
    let written = File::create(&probe).and_then(|mut file| {
        file.write_all(&[0; 4096])?;
        file.sync_all()
    });
    let removed = fs::remove_file(&probe);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lease::{LeaseStore, embedded::Embedded, finding::Verdict};

    fn verdicts(report: &Report) -> Vec<Verdict> {
        report.findings().iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn what_is_not_there_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert_eq!(verdicts(&examine(&path)), [Verdict::Ok]);
        assert!(!dir.path().join("a").exists());
        fs::write(dir.path().join("a"), "").unwrap();
        let report = examine(&path);
        assert_eq!(verdicts(&report), [Verdict::Failed]);
        assert!(report.failure().unwrap().contains("Not a directory"), "{report:?}");
    }

    #[tokio::test]
    async fn it_changes_nothing_that_a_daemon_relies_on() {
        let dir = tempfile::tempdir().unwrap();
        let state = || fs::read(dir.path().join("state")).unwrap();
        assert_eq!(verdicts(&examine(dir.path())), [Verdict::Ok, Verdict::Ok]);

        let daemon = Embedded::open(dir.path()).unwrap();
        let before = state();
        let report = examine(dir.path());
        assert_eq!(verdicts(&report), [Verdict::Note]);
        let pid = format!("(pid {})", std::process::id());
        assert!(report.findings()[0].text.contains(&pid), "{report:?}");
        assert_eq!(state(), before);

        daemon.close().await.unwrap();
        drop(daemon);
        let report = examine(dir.path());
        assert_eq!(report.findings()[1].text, "clean");

        let daemon = Embedded::open(dir.path()).unwrap();
        daemon.cover(Duration::from_secs(7)).await.unwrap();
        let before = state();
        drop(daemon);
        let report = examine(dir.path());
        assert_eq!(verdicts(&report), [Verdict::Ok, Verdict::Note]);
        assert!(report.findings()[1].text.ends_with("nothing is granted for 7s"), "{report:?}");
        assert_eq!(state(), before);
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["lock", "state"]);
    }

    #[test]
    fn a_damaged_state_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("state"), "garbage").unwrap();
        let report = examine(dir.path());
        assert_eq!(verdicts(&report), [Verdict::Failed]);
        assert!(report.failure().unwrap().contains("is damaged"), "{report:?}");
    }
}

//! Data directory of the embedded store, as a trait: the daemon uses
//! [`DataDir`], the simulation a directory that loses writes.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    pin::Pin,
};

use super::record::Record;

pub(super) const STATE: &str = "state";
/// Renamed to `state` once it is durable.
pub(super) const STATE_NEW: &str = "state.new";
pub(super) const LOCK: &str = "lock";

/// Work that may block.
pub type Blocking = Box<dyn FnOnce() + Send>;
/// Completion of [`Blocking`] work.
pub type Completion = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Data directory that this process has locked until the value is dropped.
///
/// Every method acts on the locked directory itself, even after it was moved,
/// and never on another directory at the same path.
pub trait StateDir: Send + Sync + 'static {
    /// Path that the operator configured, for messages.
    fn path(&self) -> &Path;
    /// Compares the directory at the path and its lock file with the locked ones.
    fn identity(&self) -> io::Result<Identity>;
    /// Returns whether a daemon has stored a state here before, even if the state
    /// file no longer exists.
    fn is_marked(&self) -> bool;
    /// Records in the lock file that a state was stored here.
    fn mark(&self) -> io::Result<()>;
    /// Reads `state`; `None` if it does not exist.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;
    /// Writes `state.new`, replacing its contents.
    fn write_new(&self, contents: &[u8]) -> io::Result<Box<dyn NewState>>;
    /// Renames `state.new` to `state`.
    fn rename_new(&self) -> io::Result<()>;
    /// Makes the rename durable.
    fn sync(&self) -> io::Result<()>;
    /// Runs work that may block on the disk.
    fn run(&self, work: Blocking) -> Completion;
}

/// Written file `state.new`.
pub trait NewState {
    /// Makes the contents durable.
    fn sync(&self) -> io::Result<()>;
}

/// Result of the comparison in [`StateDir::identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The path leads to the locked directory and the locked file.
    Same,
    /// The directory was moved or deleted; another one may be at its path.
    DirectoryChanged,
    /// The lock file was deleted or replaced, so another daemon may have locked
    /// the new one.
    LockFileChanged,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "is unchanged",
            Self::DirectoryChanged => "was moved, deleted or replaced",
            Self::LockFileChanged => "lost its lock file",
        })
    }
}

/// Error of a data directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another daemon has locked it.
    #[error(
        "the data directory {} is in use by another daemon{}: stop that daemon, or choose \
         another directory with --data-dir", .path.display(), pid_text(*.pid)
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process ID of the other daemon, if the lock file has one.
        pid: Option<u32>,
    },
    /// The path leads to something other than a directory.
    #[error("{} is not a directory; choose another with --data-dir", .path.display())]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The state file can't be decoded.
    #[error(
        "{} is corrupt ({why}). Without it, old tokens could be issued again. When no client \
         holds a lock, move the data directory away and restart: new tokens start at the \
         current time", .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// The state file does not exist, but the directory was in use.
    #[error(
        "{} is missing, but a daemon has used the directory before, and clients may still rely \
         on its grants. When no client holds a lock, move the data directory away and restart: \
         new tokens start at the current time", .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The lock file has contents that no daemon writes.
    #[error(
        "{} is corrupt (expected the process ID of a daemon). Check that --data-dir is the right \
         directory. If it is, and no daemon uses it, delete this file and restart",
        .path.display()
    )]
    LockFile {
        /// The file.
        path: PathBuf,
    },
    /// The path no longer leads to the locked directory.
    #[error(
        "the data directory {} {identity} while this daemon used it. Another daemon may use the \
         path now, so this daemon no longer grants locks and writes nothing. Stop this daemon, \
         make sure that no other daemon uses the path, and start it again", .path.display()
    )]
    Replaced {
        /// The configured path.
        path: PathBuf,
        /// The difference.
        identity: Identity,
    },
    /// The operating system reported an error.
    #[error("can't {doing} {}: {source}", .path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// Its object.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

pub(super) fn failed(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path = path.to_owned();
    move |source| OpenError::Io { doing, path, source }
}

/// Reads the record; `None` if no daemon has used the directory.
pub(super) fn read(directory: &dyn StateDir) -> Result<Option<Record>, OpenError> {
    let path = directory.path().join(STATE);
    match directory.read().map_err(failed("read", &path))? {
        Some(bytes) => match Record::decode(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(why) => Err(OpenError::Corrupt { path, why }),
        },
        None if directory.is_marked() => Err(OpenError::Missing { path }),
        None => Ok(None),
    }
}

/// Replaces the record durably and atomically.
///
/// The identity is checked before the write and again before the rename, because
/// a daemon that locked a new lock file in the same directory relies on its own
/// record.
pub(super) fn replace(directory: &dyn StateDir, record: &Record) -> Result<(), OpenError> {
    let path = directory.path();
    let (new, state) = (path.join(STATE_NEW), path.join(STATE));
    verify(directory)?;
    let written = directory.write_new(record.encode().as_bytes());
    written.and_then(|file| file.sync()).map_err(failed("write", &new))?;
    verify(directory)?;
    directory.rename_new().map_err(failed("replace", &state))?;
    // A power failure could undo the rename before this.
    directory.sync().map_err(failed("sync", path))
}

/// Fails unless the directory is the one that this process locked.
pub(super) fn verify(directory: &dyn StateDir) -> Result<(), OpenError> {
    let path = directory.path();
    match directory.identity().map_err(failed("check", path))? {
        Identity::Same => Ok(()),
        identity => Err(OpenError::Replaced { path: path.to_owned(), identity }),
    }
}

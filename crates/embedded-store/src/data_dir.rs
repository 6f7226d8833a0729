//! Data directory on a file system. All I/O is relative to the descriptor of
//! the locked directory, never by path.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat},
    sys::stat::{FileStat, Mode, fstat, fstatat},
    unistd::{UnlinkatFlags, unlinkat},
};

use super::directory::{
    Blocking, Completion, Identity, LOCK, NewState, OpenError, STATE, STATE_NEW, StateDir, failed,
};

/// Maximum number of bytes read; a state file has about a hundred.
const MAX_STATE_BYTES: u64 = 4096;
/// Maximum number of bytes read; a process ID has at most ten digits.
const MAX_LOCK_BYTES: u64 = 32;

/// Locked directory on a file system.
pub(super) struct DataDir {
    path: PathBuf,
    directory: OwnedFd,
    lock: File,
    /// Device and inode of the directory and of the lock file.
    directory_id: FileId,
    lock_id: FileId,
    /// True if the lock file had contents when it was opened.
    is_marked: bool,
}

/// Device and inode, which identify a file while a descriptor is open.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

#[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "types differ by system")]
impl From<FileStat> for FileId {
    fn from(stat: FileStat) -> Self {
        Self(stat.st_dev as u64, stat.st_ino as u64)
    }
}

impl DataDir {
    /// Opens and locks the directory, and creates it if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        if path.metadata().is_ok_and(|found| !found.is_dir()) {
            return Err(OpenError::NotDirectory { path: path.into() });
        }
        create(path).map_err(failed("create the data directory", path))?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = openat(AT_FDCWD, path, flags, Mode::empty());
        let directory = directory.map_err(io::Error::from).map_err(failed("open", path))?;
        let lock_path = path.join(LOCK);
        let lock = open_in(&directory, LOCK, OFlag::O_RDWR | OFlag::O_CREAT);
        let mut lock = lock.map_err(failed("open", &lock_path))?;
        let mut contents = Vec::new();
        let read = (&mut lock).take(MAX_LOCK_BYTES).read_to_end(&mut contents);
        let pid = parse_pid(&contents);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: path.into(), pid: pid.ok().flatten() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &lock_path)(source)),
        }
        read.map_err(failed("read", &lock_path))?;
        let pid = pid.map_err(|()| OpenError::LockFile { path: lock_path.clone() })?;
        let id_of = |fd| fstat(fd).map(FileId::from).map_err(io::Error::from);
        let directory_id = id_of(&directory).map_err(failed("check", path))?;
        let lock_id = fstat(&lock)
            .map(FileId::from)
            .map_err(io::Error::from)
            .map_err(failed("check", path))?;
        let path = path.to_owned();
        Ok(Self { path, directory, lock, directory_id, lock_id, is_marked: pid.is_some() })
    }

    /// Removes `state.new`.
    pub(super) fn remove_new(&self) -> io::Result<()> {
        Ok(unlinkat(&self.directory, STATE_NEW, UnlinkatFlags::NoRemoveDir)?)
    }
}

/// Parses the process ID in a lock file; `None` if the file is empty.
fn parse_pid(contents: &[u8]) -> Result<Option<u32>, ()> {
    if contents.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(contents).map_err(|_| ())?;
    text.trim().parse().map(Some).map_err(|_| ())
}

/// Opens a file in a directory.
fn open_in(directory: &OwnedFd, name: &str, flags: OFlag) -> io::Result<File> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    Ok(openat(directory, name, flags | OFlag::O_CLOEXEC, mode)?.into())
}

/// Creates the missing levels of a path durably.
fn create(path: &Path) -> io::Result<()> {
    let missing: Vec<_> = path.ancestors().take_while(|level| !level.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for parent in missing.iter().filter_map(|level| level.parent()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

impl NewState for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl StateDir for DataDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> io::Result<Identity> {
        let is = |stat: Result<FileStat, Errno>, id: FileId| match stat {
            Ok(stat) => Ok(FileId::from(stat) == id),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(false),
            Err(error) => Err(io::Error::from(error)),
        };
        let at_path = fstatat(AT_FDCWD, &self.path, AtFlags::empty());
        if !is(at_path, self.directory_id)? {
            return Ok(Identity::DirectoryChanged);
        }
        let lock = fstatat(&self.directory, LOCK, AtFlags::AT_SYMLINK_NOFOLLOW);
        Ok(if is(lock, self.lock_id)? { Identity::Same } else { Identity::LockFileChanged })
    }

    fn is_marked(&self) -> bool {
        self.is_marked
    }

    fn mark(&self) -> io::Result<()> {
        // Fixed length, written in place: a crash leaves no torn contents.
        let mut lock = &self.lock;
        lock.rewind()?;
        writeln!(lock, "{:>10}", std::process::id())?;
        lock.sync_all()
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match open_in(&self.directory, STATE, OFlag::O_RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MAX_STATE_BYTES).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write_new(&self, contents: &[u8]) -> io::Result<Box<dyn NewState>> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
        let mut file = open_in(&self.directory, STATE_NEW, flags)?;
        file.write_all(contents)?;
        Ok(Box::new(file))
    }

    fn rename_new(&self) -> io::Result<()> {
        Ok(renameat(&self.directory, STATE_NEW, &self.directory, STATE)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::fsync(&self.directory)?)
    }

    fn run(&self, work: Blocking) -> Completion {
        let done = tokio::task::spawn_blocking(work);
        Box::pin(async {
            // The caller detects work that panicked: it has no result.
            _ = done.await;
        })
    }
}

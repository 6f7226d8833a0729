//! The data directory: one small file, replaced as a whole, and a lock against
//! a second daemon.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const STATE: &str = "state";
/// Becomes `state` once it is durable.
const STATE_NEW: &str = "state.new";
const LOCK: &str = "lock";
const FORMAT: &str = "leasehold state 1";
/// No token can carry this epoch or a later one.
const LAST_EPOCH: u64 = (1 << 33) - 1;
/// A real one has a hundred bytes.
const LARGEST_STATE: u64 = 4096;

/// What must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The highest epoch of which tokens may have been granted.
    pub epoch: u64,
    /// The longest ttl that any session was given since the last clean stop.
    pub longest_ttl: Duration,
    /// Whether everything was given back before the daemon stopped.
    pub clean: bool,
}

/// Why a data directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A second daemon.
    #[error(
        "the data directory {} is in use by another daemon{}: stop that one, or choose \
         another directory with --data-dir", .path.display(), pid_text(*.pid)
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The other daemon's process, if it said so.
        pid: Option<u32>,
    },
    /// The file does not make sense.
    #[error(
        "{} is damaged ({why}): tokens could fall if it were ignored. Once nobody holds a lock \
         any more, move the whole data directory away: a new one begins where the clock is", .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file is gone, but the directory was in use.
    #[error(
        "{} is missing, though the directory has been in use: holders may still believe in \
         their grants. Once nobody holds a lock any more, move the whole data directory away: a \
         new one begins where the clock is", .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The operating system said no.
    #[error("can't {doing} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// The directory, locked for as long as this or a clone of it lives.
#[derive(Clone)]
pub(super) struct Directory {
    path: Arc<Path>,
    lock: Arc<File>,
}

impl Directory {
    /// Opens and locks the directory and reads what is there.
    pub(super) fn open(path: &Path) -> Result<(Self, Option<Record>), OpenError> {
        create(path).map_err(failed("create the data directory", path))?;
        let lock_path = path.join(LOCK);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(failed("open", &lock_path))?;
        let mut user = String::new();
        let read = (&mut lock).take(32).read_to_string(&mut user);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: path.into(), pid: user.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &lock_path)(source)),
        }
        read.map_err(failed("read", &lock_path))?;
        let directory = Self { path: path.into(), lock: Arc::new(lock) };
        let found = directory.read()?;
        if found.is_none() && !user.is_empty() {
            return Err(OpenError::Missing { path: path.join(STATE) });
        }
        Ok((directory, found))
    }

    /// Leaves our process id in the lock file. From then on, a missing state
    /// file is an alarm and not a fresh start; so it is called after the first
    /// write.
    pub(super) fn mark_used(&self) -> Result<(), OpenError> {
        let mark = || {
            let mut lock = &*self.lock;
            lock.rewind()?;
            lock.set_len(0)?;
            writeln!(lock, "{}", std::process::id())?;
            lock.sync_all()
        };
        mark().map_err(failed("write", &self.path.join(LOCK)))
    }

    fn read(&self) -> Result<Option<Record>, OpenError> {
        let path = self.path.join(STATE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST_STATE).read_to_end(&mut bytes).map_err(failed("read", &path))?;
        match Record::decode(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(why) => Err(OpenError::Corrupt { path, why }),
        }
    }

    /// Makes the record durable: all of it or nothing.
    pub(super) fn write(&self, record: &Record) -> Result<(), OpenError> {
        let (new, state) = (self.path.join(STATE_NEW), self.path.join(STATE));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(record.encode().as_bytes())?;
            file.sync_all()
        };
        write().map_err(failed("write", &new))?;
        fs::rename(&new, &state).map_err(failed("replace", &state))?;
        // The rename itself must survive a power cut.
        File::open(&self.path)
            .and_then(|directory| directory.sync_all())
            .map_err(failed("sync", &self.path))
    }
}

/// Creates what is missing of the path, so that it survives a power cut.
fn create(path: &Path) -> io::Result<()> {
    let missing: Vec<_> = path.ancestors().take_while(|level| !level.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for parent in missing.iter().filter_map(|level| level.parent()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path = path.to_owned();
    move |source| OpenError::Io { doing, path, source }
}

impl Record {
    fn encode(&self) -> String {
        let body = format!(
            "{FORMAT}\nepoch {}\nlongest-ttl-ms {}\nstopped-cleanly {}\n",
            self.epoch,
            self.longest_ttl.as_millis(),
            self.clean
        );
        let sum = crc32fast::hash(body.as_bytes());
        format!("{body}crc32 {sum:08x}\n")
    }

    /// Accepts exactly what `encode` writes.
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let first = text.lines().next().unwrap_or_default();
        if first != FORMAT {
            return Err(if text.is_empty() {
                "it is empty".to_owned()
            } else if first.starts_with("leasehold state ") {
                let shown: String = first.chars().take(40).collect();
                format!("it was written in another format, {shown:?}; this daemon knows {FORMAT:?}")
            } else {
                format!("it does not begin with {FORMAT:?}")
            });
        }
        let field = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
                .ok_or_else(|| format!("{key} is missing"))
        };
        let number =
            |key: &str| field(key)?.parse::<u64>().map_err(|_| format!("{key} is not a number"));
        let record = Self {
            epoch: number("epoch")?,
            longest_ttl: Duration::from_millis(number("longest-ttl-ms")?),
            clean: match field("stopped-cleanly")? {
                "true" => true,
                "false" => false,
                _ => return Err("stopped-cleanly is neither true nor false".to_owned()),
            },
        };
        if record.epoch >= LAST_EPOCH {
            return Err(format!("its epoch {} is beyond what tokens can carry", record.epoch));
        }
        if record.encode() != text {
            return Err("its checksum does not match".to_owned());
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_reads_back(epoch in 0..LAST_EPOCH, ttl in 0..100_000_u64, clean: bool) {
            let record = Record { epoch, longest_ttl: Duration::from_millis(ttl), clean };
            prop_assert_eq!(Record::decode(record.encode().as_bytes()), Ok(record));
        }

        #[test]
        fn any_change_is_noticed(at in 0..90_usize, flip in 1..=255_u8) {
            let record = Record { epoch: 1_794_790_000, longest_ttl: Duration::from_secs(10), clean: true };
            let mut bytes = record.encode().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(Record::decode(&bytes).is_err());
        }

        #[test]
        fn a_cut_is_noticed(keep in 0..90_usize) {
            let record = Record { epoch: 7, longest_ttl: Duration::from_secs(10), clean: true };
            let bytes = record.encode().into_bytes();
            prop_assert!(Record::decode(&bytes[..keep % bytes.len()]).is_err());
        }

        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Record::decode(&bytes).is_err());
        }
    }

    #[test]
    fn only_what_was_written_is_read_fuzzed() {
        Fuzz::new("state-file").longest(8192).run(|bytes| match Record::decode(bytes) {
            Ok(record) => {
                assert_eq!(record.encode().as_bytes(), bytes);
                assert!(record.epoch < LAST_EPOCH, "{record:?}");
                format!("{}", record.clean)
            }
            Err(why) => {
                assert!(why.len() < 600 && !why.chars().any(char::is_control), "{why:?}");
                why
            }
        });
    }
}

//! Input files.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

/// Returns the corpus of a target, in the order of file names.
pub(crate) fn read(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

/// Writes an input with a new kind of outcome to a file, if `FUZZ_KEEP` is set.
pub(crate) fn keep(target: &str, input: &[u8]) {
    if let Some(directory) = std::env::var_os("FUZZ_KEEP") {
        write(&Path::new(&directory).join(target), input);
    }
}

/// Writes a failing input to a file, and returns its path.
pub(crate) fn keep_failed(target: &str, input: &[u8]) -> PathBuf {
    write(&std::env::temp_dir().join("leasehold-fuzz").join(target), input)
}

fn write(directory: &Path, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = directory.join(format!("{:016x}", hasher.finish()));
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, input));
    if let Err(error) = written {
        eprintln!("can't write {}: {error}", path.display());
    }
    path
}

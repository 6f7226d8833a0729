//! Instructions per operation, compared with the stored counts.
//!
//! Unlike times, counts do not depend on the load or the speed of a machine.
//! Valgrind presents the same processor on every x86-64 machine with AVX2, so
//! that code which is chosen at run time (memcpy, ciphers) is the same too. The
//! counts do depend on the compiler, which `rust-toolchain.toml` pins, and a
//! little on valgrind and the C library; the file names all three.

mod counts;

use std::{collections::BTreeMap, fs, path::Path, sync::Mutex, thread};

use counts::{Comparison, Counts};

use crate::{
    run::Cmd,
    tool::{Tool, Unavailable},
    workspace::Workspace,
};

/// Package and binary with the operations.
const PACKAGE: &str = "leasehold-instructions";

/// Seconds until a process is considered hung. On an idle machine, each takes a
/// few seconds.
const TIMEOUT: &str = "300";

/// Maximum number of starts of a process that fails.
const MAX_ATTEMPTS: usize = 3;

/// File with the stored counts.
const FILE: &str = "tests/instructions/counts.txt";

/// Measures all operations. Returns false if one needs too many instructions. With
/// `accept`, stores the new counts.
pub(crate) fn run(accept: bool, workspace: &Workspace) -> Result<bool, String> {
    match Tool::Valgrind.ensure() {
        Ok(()) => {}
        Err(Unavailable::Missing(why) | Unavailable::Optional(why)) => return Err(why),
    }
    // Release profile, because inlining across crates affects the counts.
    let build = Cmd::cargo("build").args(["--locked", "--release", "--package", PACKAGE]);
    build.run(&workspace.root).map_err(|failure| failure.why)?;
    let binary = workspace.target_directory.join("release").join(PACKAGE);
    let operations = operations(&binary, &workspace.root)?;
    let measured = measure(&binary, &operations, &workspace.root)?;
    let measured = Counts { tools: tools(&workspace.root)?, counts: measured };

    let file = workspace.root.join(FILE);
    if accept {
        fs::write(&file, measured.to_string()).map_err(|error| format!("{FILE}: {error}"))?;
        println!("{measured}\nstored in {FILE}");
        return Ok(true);
    }
    let kept = fs::read_to_string(&file).map_err(|error| {
        format!("{FILE}: {error}; `cargo xtask instructions --accept` creates the file")
    })?;
    let comparison = Comparison::new(&kept.parse()?, &measured);
    print!("{comparison}");
    Ok(comparison.has_passed())
}

/// Returns the names of the operations with their numbers of repetitions.
fn operations(binary: &Path, root: &Path) -> Result<Vec<(String, u64)>, String> {
    let list = Cmd::new(binary.to_string_lossy()).arg("list").output(root)?;
    let operation = |line: &str| {
        let (name, repetitions) = line.split_once(' ')?;
        Some((name.to_owned(), repetitions.parse().ok()?))
    };
    let all: Option<Vec<_>> = list.lines().map(operation).collect();
    all.ok_or_else(|| format!("{PACKAGE} list: unexpected output\n{list}"))
}

/// Counts the instructions of one repetition of each operation, as many
/// operations at a time as there are processors.
fn measure(
    binary: &Path,
    operations: &[(String, u64)],
    root: &Path,
) -> Result<BTreeMap<String, u64>, String> {
    let waiting = Mutex::new(operations.iter());
    let next = || waiting.lock().ok()?.next();
    let work = || {
        let mut found = Vec::new();
        while let Some((name, repetitions)) = next() {
            let whole = count_with_retries(binary, name, "whole", root)?;
            let reference = count_with_retries(binary, name, "reference", root)?;
            found.push((name.clone(), whole.saturating_sub(reference) / repetitions));
        }
        Ok(found)
    };
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = BTreeMap::new();
        for worker in workers {
            let found: Result<_, String> = worker.join().map_err(|_| "a thread panicked")?;
            all.extend(found?);
        }
        Ok(all)
    })
}

/// Counts the instructions of a process, and retries if it fails: on a busy
/// machine, a client may time out.
fn count_with_retries(binary: &Path, name: &str, mode: &str, root: &Path) -> Result<u64, String> {
    let mut last = Err(String::new());
    for _ in 0..MAX_ATTEMPTS {
        last = count(binary, name, mode, root);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Counts the instructions of a whole process.
fn count(binary: &Path, name: &str, mode: &str, root: &Path) -> Result<u64, String> {
    let file = std::env::temp_dir().join(format!(
        "leasehold-instructions-{}-{}-{mode}",
        std::process::id(),
        name.replace('/', "-"),
    ));
    let valgrind = Cmd::new("timeout")
        .args([TIMEOUT, "valgrind"])
        .args(["--quiet", "--tool=cachegrind", "--cache-sim=no"])
        .arg(format!("--cachegrind-out-file={}", file.display()))
        .arg(binary.to_string_lossy())
        .args([name, mode])
        .output(root);
    let profile = fs::read_to_string(&file);
    _ = fs::remove_file(&file);
    valgrind?;
    let profile = profile.map_err(|error| format!("{}: {error}", file.display()))?;
    counts::total(&profile).ok_or_else(|| format!("{}: no summary found", file.display()))
}

/// Returns the versions that the counts depend on.
fn tools(root: &Path) -> Result<String, String> {
    let first = |cmd: Cmd| -> Result<String, String> {
        Ok(cmd.output(root)?.lines().next().unwrap_or_default().to_owned())
    };
    let rustc = first(Cmd::new("rustc").arg("--version"))?;
    let rustc = rustc.split(" (").next().unwrap_or_default().to_owned();
    let valgrind = first(Cmd::new("valgrind").arg("--version"))?;
    let libc = first(Cmd::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    Ok(format!("{rustc}, {valgrind}, {libc}"))
}

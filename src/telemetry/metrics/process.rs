//! Metrics of the process, read from the operating system.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeValLike,
};

use super::{
    family::{Family, Value},
    table,
};

/// Appends the metrics that the operating system provides.
pub(super) fn read(started: SystemTime, out: &mut Vec<Family>) {
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let spent = usage.user_time() + usage.system_time();
        let seconds = Value::Number(spent.num_microseconds() as f64 / 1e6);
        out.push(Family::single(&table::PROCESS_CPU, seconds));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    if let Some(kibibytes) = field("VmRSS") {
        out.push(Family::count(&table::PROCESS_MEMORY, kibibytes * 1024));
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // Without the one that reads the directory.
        let count = files.count().saturating_sub(1);
        out.push(Family::count(&table::PROCESS_OPEN_FILES, count as u64));
    }
    if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        out.push(Family::count(&table::PROCESS_MAX_FILES, most));
    }
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    out.push(Family::single(&table::PROCESS_START, Value::Number(started.as_secs_f64())));
    if let Some(threads) = field("Threads") {
        out.push(Family::count(&table::PROCESS_THREADS, threads));
    }
}

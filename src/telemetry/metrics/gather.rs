//! Current values of all metrics.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use leasehold_core::session::{SessionCounts, Survey};
use leasehold_store::{
    StoreStats,
    stats::{AccountStats, DirectoryStats},
};

use super::{
    Metrics,
    family::{Family, Value},
    process, table,
};

/// Values that are read only when metrics are exported.
#[derive(Debug)]
pub struct Reading {
    /// Numbers of sessions, locks and waiters.
    pub locks: Survey,
    /// Numbers of sessions since the start.
    pub sessions: SessionCounts,
    /// Measurements of the store.
    pub store: StoreStats,
    /// True if the store can grant locks.
    pub is_available: bool,
}

impl Metrics {
    /// Returns the current values of all metrics, in the order of the table.
    #[must_use]
    pub fn gather(&self, reading: &Reading) -> Vec<Family> {
        let Reading { locks, sessions, store, is_available } = reading;
        let mut out = Vec::with_capacity(table::METRICS.len());
        self.counters.read(&mut out);
        if let Some(wait) = out.iter_mut().find(|family| family.metric.name == table::WAIT.name) {
            wait.exemplars = self.exemplars.read();
        }
        let waiters = [("lock", locks.waiting - locks.candidates), ("election", locks.candidates)];
        let waiters = waiters.map(|(kind, count)| ([kind], Value::Count(count as u64)));
        let oldest_wait = locks.oldest_lock_wait.unwrap_or_default();
        out.extend([
            Family::count(&table::LOCKS, locks.locks as u64),
            Family::count(&table::HELD_LOCKS, locks.held as u64),
            Family::count(&table::LOCKS_AT_RISK, locks.at_risk as u64),
            Family::labeled(&table::WAITERS, waiters),
            Family::single(&table::OLDEST_WAIT, seconds(oldest_wait)),
            Family::count(&table::LEADERLESS, locks.leaderless as u64),
            Family::count(&table::SESSIONS, locks.sessions as u64),
            Family::count(&table::SESSIONS_OPENED, sessions.opened),
            Family::count(&table::SESSIONS_EXPIRED, sessions.expired),
        ]);
        // Only leases in an account are renewed.
        if store.account.is_some() {
            self.counters.read_renewals(&mut out);
        }
        out.push(Family::count(&table::STORE_AVAILABLE, u64::from(*is_available)));
        if let Some(account) = &store.account {
            read_account(account, &mut out);
        }
        out.push(Family::count(&table::CLOCK_JUMPS, self.clock_jumps.load(Relaxed)));
        if let Some(directory) = &store.directory {
            read_directory(directory, &mut out);
        }
        self.names.read(&mut out);
        let version = [env!("CARGO_PKG_VERSION")];
        out.push(Family::labeled(&table::BUILD_INFO, [(version, Value::Count(1))]));
        process::read(self.started, &mut out);
        out
    }
}

fn read_account(account: &AccountStats, out: &mut Vec<Family>) {
    let calls = account
        .calls
        .iter()
        .map(|calls| ([calls.operation, calls.purpose, calls.result], Value::Count(calls.count)));
    out.push(Family::labeled(&table::STORAGE_CALLS, calls));
    let durations = account.call_seconds.iter();
    let durations = durations.map(|(name, length)| ([*name], Value::Durations(length.clone())));
    out.push(Family::labeled(&table::STORAGE_SECONDS, durations));
    out.extend([
        Family::count(&table::THROTTLED, u64::from(account.is_throttled)),
        Family::count(&table::THROTTLINGS, account.throttlings),
        Family::single(&table::CLOCK_OFFSET, Value::Number(account.clock_offset as f64)),
    ]);
}

fn read_directory(directory: &DirectoryStats, out: &mut Vec<Family>) {
    out.extend([
        Family::count(&table::WRITES, directory.writes),
        Family::count(&table::FAILED_WRITES, directory.failed_writes),
        Family::single(&table::RECOVERY_LEFT, seconds(directory.recovery_left)),
    ]);
}

fn seconds(length: Duration) -> Value {
    Value::Number(length.as_secs_f64())
}

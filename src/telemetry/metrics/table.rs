//! Table of all metrics: the only place that names them. The reference, the scrape and
//! the tests of dashboard and alerts are derived from it.

/// A metric: a row of the table.
#[derive(Debug)]
pub struct Metric {
    /// Name without the suffix of its type.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Condition under which a daemon has the metric.
    pub presence: Presence,
    /// One sentence for the help and the reference, without a final period.
    pub about: &'static str,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Number that only increases. Its name ends in `_total`.
    Counter,
    /// Current value.
    Gauge,
    /// Distribution of durations.
    Histogram,
}

/// Condition under which a daemon has a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every daemon.
    Always,
    /// The daemon uses the Azure store.
    Azure,
    /// The daemon uses the embedded store.
    Embedded,
    /// The setting `metrics_lock_names` is not 0.
    LockNames,
    /// The operating system is Linux.
    Linux,
}

impl Metric {
    /// Returns the name of the samples, for a histogram without its suffixes.
    #[must_use]
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }
}

/// Defines the constants of the metrics, and the list of all of them.
macro_rules! metrics {
    ($($id:ident: $kind:ident $name:literal [$($label:literal),*] $presence:ident, $about:literal;)*) => {
        $(
            pub(super) const $id: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                presence: Presence::$presence,
                about: $about,
            };
        )*

        /// All metrics, in the order of the reference.
        pub const METRICS: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    GRANTS: Counter "leasehold_grants" ["source"] Always,
        "Grants, by the origin of the lease: `lease` (acquired for this grant), `handoff` (from a holder of this daemon) or `linger` (kept after the last release)";
    REFUSALS: Counter "leasehold_refusals" ["reason"] Always,
        "Refused acquires, by reason: `held`, `timed_out`, `limit`, `shutting_down`, `unavailable`, `recovering` or `data_loss`";
    CANCELS: Counter "leasehold_cancels" [] Always,
        "Waiting acquires that their client withdrew, or whose session ended";
    RELEASES: Counter "leasehold_releases" [] Always,
        "Grants that their holder released";
    LOSSES: Counter "leasehold_losses" ["reason"] Always,
        "Grants that ended without a release, by reason: `expired`, `broken`, `max_hold_time`, `lease_lost`, `stepped_down` or `shutting_down`";
    AT_RISK: Counter "leasehold_at_risk" [] Always,
        "Warnings that a grant will be lost unless its lease is renewed";
    WAIT: Histogram "leasehold_wait_seconds" [] Always,
        "Time from an acquire to its grant";
    HOLD: Histogram "leasehold_hold_seconds" [] Always,
        "Time from a grant to its release or loss";
    HANDOFFS: Counter "leasehold_handoffs" ["scope"] Always,
        "Locks that passed from a holder to a waiter: `local` (within this daemon) or `remote` (from a peer to this daemon)";
    LEASE_ACQUIRE: Histogram "leasehold_lease_acquire_seconds" [] Always,
        "Duration of lease acquisitions that succeeded";
    LOCKS: Gauge "leasehold_locks" [] Always,
        "Locks that have a holder, a waiter or a lease at this daemon";
    HELD_LOCKS: Gauge "leasehold_held_locks" [] Always,
        "Locks that a session of this daemon holds";
    LOCKS_AT_RISK: Gauge "leasehold_locks_at_risk" [] Always,
        "Held locks whose lease is close to its expiry without a renewal";
    WAITERS: Gauge "leasehold_waiters" ["kind"] Always,
        "Acquires that wait at this daemon: for a `lock`, or as candidates of an `election`";
    OLDEST_WAIT: Gauge "leasehold_oldest_wait_seconds" [] Always,
        "Longest time for which an acquire has been waiting, without candidates of elections";
    LEADERLESS: Gauge "leasehold_leaderless_elections" [] Always,
        "Elections with a candidate at this daemon and without a known leader";
    SESSIONS: Gauge "leasehold_sessions" [] Always,
        "Open sessions";
    SESSIONS_OPENED: Counter "leasehold_sessions_opened" [] Always,
        "Sessions that were opened";
    SESSIONS_EXPIRED: Counter "leasehold_sessions_expired" [] Always,
        "Sessions without a keep-alive for their TTL";
    RENEWALS: Counter "leasehold_renewals" ["result"] Azure,
        "Renewals of leases, by result: `renewed`, `failed` (also with an unknown outcome) or `lost`";
    RENEWAL_RETRIES: Counter "leasehold_renewal_retries" [] Azure,
        "Renewals that repeat a failed one";
    RENEWAL: Histogram "leasehold_renewal_seconds" [] Azure,
        "Duration of renewals with the result `renewed` or `failed`";
    RENEWAL_LEFT: Histogram "leasehold_renewal_time_left_seconds" [] Azure,
        "Validity of the lease that was left when a renewal succeeded";
    STORE_AVAILABLE: Gauge "leasehold_store_available" [] Always,
        "1 if the store can grant locks, else 0";
    STORAGE_CALLS: Counter "leasehold_storage_calls" ["operation", "purpose", "result"] Azure,
        "Completed calls to the storage account";
    STORAGE_SECONDS: Histogram "leasehold_storage_call_seconds" ["operation"] Azure,
        "Duration of calls to the storage account";
    THROTTLED: Gauge "leasehold_storage_throttled" [] Azure,
        "1 while the storage account throttles calls, else 0";
    THROTTLINGS: Counter "leasehold_storage_throttlings" [] Azure,
        "Answers by which the storage account throttled calls";
    CLOCK_OFFSET: Gauge "leasehold_clock_offset_seconds" [] Azure,
        "Lead of the storage clock over the clock of this machine, in whole seconds";
    CLOCK_JUMPS: Counter "leasehold_clock_jumps" [] Always,
        "Jumps of the wall clock relative to the boot-time clock";
    WRITES: Counter "leasehold_store_writes" [] Embedded,
        "Successful writes of the state file";
    FAILED_WRITES: Counter "leasehold_store_failed_writes" [] Embedded,
        "Failed writes of the state file";
    RECOVERY_LEFT: Gauge "leasehold_recovery_left_seconds" [] Embedded,
        "Time until grants from before a crash have ended; until then, the daemon grants nothing";
    LOCK_GRANTS: Counter "leasehold_lock_grants" ["namespace", "lock"] LockNames,
        "Grants, by lock";
    LOCK_LOSSES: Counter "leasehold_lock_losses" ["namespace", "lock"] LockNames,
        "Losses, by lock";
    LOCK_REFUSALS: Counter "leasehold_lock_refusals" ["namespace", "lock"] LockNames,
        "Refusals, by lock";
    LOCK_WAIT: Counter "leasehold_lock_wait_seconds" ["namespace", "lock"] LockNames,
        "Sum of the times from acquires to their grants, by lock";
    LOCK_HOLD: Counter "leasehold_lock_hold_seconds" ["namespace", "lock"] LockNames,
        "Sum of the times from grants to their releases or losses, by lock";
    BUILD_INFO: Gauge "leasehold_build_info" ["version"] Always,
        "1, with the version of the daemon";
    PROCESS_CPU: Counter "process_cpu_seconds" [] Always,
        "CPU time of the daemon, user and system";
    PROCESS_MEMORY: Gauge "process_resident_memory_bytes" [] Linux,
        "Resident memory of the daemon";
    PROCESS_OPEN_FILES: Gauge "process_open_fds" [] Linux,
        "Open files of the daemon";
    PROCESS_MAX_FILES: Gauge "process_max_fds" [] Always,
        "Limit of open files of the daemon";
    PROCESS_START: Gauge "process_start_time_seconds" [] Always,
        "Start of the daemon, in seconds since 1970";
    PROCESS_THREADS: Gauge "process_threads" [] Linux,
        "Threads of the daemon";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            let name = metric.name;
            assert!(name.starts_with("leasehold_") || name.starts_with("process_"), "{name}");
            assert!(!name.ends_with("_total") && !metric.about.ends_with('.'), "{name}");
            let is_duration = metric.kind == Kind::Histogram;
            assert!(!is_duration || name.ends_with("_seconds"), "{name}");
        }
    }
}

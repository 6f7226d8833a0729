//! Results and durations of storage calls, for metrics. Counted with relaxed atomics.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use leasehold_store::stats::{AccountStats, CompletedCalls, Histogram};

use super::{
    fault::Fault,
    limiter::{KINDS, Kind, PURPOSES, Purpose},
};

/// Names of the results. The order is that of [`result_of`].
const RESULTS: [&str; 11] = [
    "ok",
    "no_blob",
    "no_container",
    "held",
    "not_ours",
    "changed",
    "throttled",
    "refused",
    "no_access_token",
    "unreachable",
    "unknown",
];

/// Position of [`Fault::Busy`] in [`RESULTS`].
const THROTTLED: usize = 6;

/// Upper bounds of the buckets of durations, in seconds.
const BOUNDS: [f64; 12] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Counters of completed calls.
pub(super) struct CallStats {
    counts: [[[AtomicU64; RESULTS.len()]; PURPOSES.len()]; KINDS.len()],
    seconds: [Histogram; KINDS.len()],
}

impl Default for CallStats {
    fn default() -> Self {
        let seconds = std::array::from_fn(|_| Histogram::new(&BOUNDS));
        Self { counts: Default::default(), seconds }
    }
}

impl CallStats {
    /// Adds a call that took this long since it was sent.
    pub(super) fn record(
        &self,
        kind: Kind,
        purpose: Purpose,
        fault: Option<&Fault>,
        took: Duration,
    ) {
        let result = result_of(fault);
        self.counts[kind as usize][purpose as usize][result].fetch_add(1, Relaxed);
        self.seconds[kind as usize].observe(took);
    }

    /// Returns the current counts.
    pub(super) fn read(&self, is_throttled: bool, clock_offset: i64) -> AccountStats {
        let mut calls = Vec::new();
        for ((_, operation), by_purpose) in KINDS.iter().zip(&self.counts) {
            for ((_, purpose), by_result) in PURPOSES.iter().zip(by_purpose) {
                for (result, count) in RESULTS.iter().zip(by_result) {
                    let count = count.load(Relaxed);
                    if count > 0 {
                        calls.push(CompletedCalls { operation, purpose, result, count });
                    }
                }
            }
        }
        let throttled = |calls: &&CompletedCalls| calls.result == RESULTS[THROTTLED];
        AccountStats {
            throttlings: calls.iter().filter(throttled).map(|calls| calls.count).sum(),
            calls,
            call_seconds: KINDS
                .iter()
                .zip(&self.seconds)
                .map(|((_, operation), seconds)| (*operation, seconds.read()))
                .collect(),
            is_throttled,
            clock_offset,
        }
    }
}

/// Returns the position of a result in [`RESULTS`].
const fn result_of(fault: Option<&Fault>) -> usize {
    match fault {
        None => 0,
        Some(Fault::NoBlob) => 1,
        Some(Fault::NoContainer) => 2,
        Some(Fault::Held) => 3,
        Some(Fault::NotOurs { .. }) => 4,
        Some(Fault::Changed) => 5,
        Some(Fault::Busy { .. }) => THROTTLED,
        Some(Fault::Refused { .. }) => 7,
        Some(Fault::NoToken { .. }) => 8,
        Some(Fault::Unreached { .. }) => 9,
        Some(Fault::Unknown { .. }) => 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_result() {
        let stats = CallStats::default();
        let took = Duration::from_millis(3);
        let busy = Fault::Busy { retry_after: None };
        let unknown = Fault::Unknown { why: String::new() };
        for fault in [None, Some(&busy), Some(&busy), Some(&unknown)] {
            stats.record(Kind::Renew, Purpose::Renew, fault, took);
        }
        stats.record(Kind::Read, Purpose::Poll, Some(&Fault::NoBlob), took);
        let read = stats.read(true, -2);
        let calls = read.calls.iter().map(|calls| (calls.operation, calls.result, calls.count));
        let expected = [
            ("renew", "ok", 1),
            ("renew", "throttled", 2),
            ("renew", "unknown", 1),
            ("read", "no_blob", 1),
        ];
        assert_eq!(calls.collect::<Vec<_>>(), expected);
        assert_eq!((read.throttlings, read.is_throttled, read.clock_offset), (2, true, -2));
        let counts = read.call_seconds.iter().map(|(name, seconds)| (*name, seconds.count()));
        let used: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        assert_eq!(used, [("renew", 4), ("read", 1)]);
    }
}

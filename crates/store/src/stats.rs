//! Measurements of a store since the daemon started, for its metrics. Counted with
//! relaxed atomics, and read for each scrape.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Measurements of a store. A part is `None` if the store does not have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreStats {
    /// Storage account.
    pub account: Option<AccountStats>,
    /// Data directory.
    pub directory: Option<DirectoryStats>,
}

/// Measurements of a storage account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountStats {
    /// Completed calls. Combinations without a call are left out.
    pub calls: Vec<CompletedCalls>,
    /// Durations of calls, from when they were sent, by operation.
    pub call_seconds: Vec<(&'static str, Distribution)>,
    /// Number of answers by which the account throttled calls.
    pub throttlings: u64,
    /// True while the account throttles calls.
    pub is_throttled: bool,
    /// Lead of the storage clock over this machine's clock, in seconds.
    pub clock_offset: i64,
}

/// Number of completed calls of one operation for one purpose with one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedCalls {
    /// Operation, such as "renew".
    pub operation: &'static str,
    /// Purpose, such as "grant".
    pub purpose: &'static str,
    /// Result, such as "ok" or "throttled".
    pub result: &'static str,
    /// Number of calls.
    pub count: u64,
}

/// Measurements of a data directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectoryStats {
    /// Number of successful writes.
    pub writes: u64,
    /// Number of failed writes.
    pub failed_writes: u64,
    /// Time until grants from before a crash have ended.
    pub recovery_left: Duration,
}

/// Distribution of durations over buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Sum of all durations, in seconds.
    pub sum: f64,
    /// Upper bound in seconds and number of durations of each bucket, not cumulative. The
    /// last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

impl Distribution {
    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// Histogram of durations.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64],
    /// One counter for each bound, and one for longer durations.
    counts: Box<[AtomicU64]>,
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Creates an empty histogram with these upper bounds, ascending and in seconds.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_micros: AtomicU64::new(0) }
    }

    /// Adds a duration. Returns its bucket.
    pub fn observe(&self, length: Duration) -> usize {
        let seconds = length.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(length.as_micros() as u64, Relaxed);
        bucket
    }

    /// Returns the current distribution.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        Distribution {
            sum: Duration::from_micros(self.sum_micros.load(Relaxed)).as_secs_f64(),
            buckets: bounds.zip(counts).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_the_first_bucket_that_fits() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for (millis, bucket) in [(0, 0), (100, 0), (101, 1), (1000, 1), (1001, 2), (60_000, 2)] {
            assert_eq!(histogram.observe(Duration::from_millis(millis)), bucket, "{millis}");
        }
        let read = histogram.read();
        assert_eq!(read.buckets, [(0.1, 2), (1.0, 2), (f64::INFINITY, 2)]);
        assert_eq!((read.count(), read.sum), (6, 62.202));
    }
}

//! Exemplars: the latest traced acquire in each bucket of the wait time.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use leasehold_time::clock::wall;

/// Duration with its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// Trace ID of W3C Trace Context.
    pub trace_id: u128,
    /// The duration.
    pub length: Duration,
    /// Time of the observation.
    pub at: SystemTime,
}

/// Latest exemplar of each bucket. Locked only for traced acquires and for scrapes.
#[derive(Default)]
pub(super) struct Exemplars(Mutex<Vec<(usize, Exemplar)>>);

impl Exemplars {
    /// Replaces the exemplar of a bucket.
    pub(super) fn set(&self, bucket: usize, trace_id: u128, length: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(other, _)| *other != bucket);
        all.push((bucket, Exemplar { trace_id, length, at: wall() }));
    }

    /// Returns all exemplars with their buckets.
    pub(super) fn read(&self) -> Vec<(usize, Exemplar)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

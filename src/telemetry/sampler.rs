//! Head sampling: decides whether a request is traced before any span exists, so that
//! a request outside of a trace costs a few instructions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use leasehold_types::TraceParent;

/// Step of the sequence of random numbers.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Share of requests to trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Share of the traces to record, from 0 to 1.
    pub ratio: f64,
    /// True if a request with a parent follows the decision of the parent.
    pub is_parent_based: bool,
}

impl Sampling {
    /// Sampling without configuration: requests follow their parent, and others are
    /// traced.
    pub const DEFAULT: Self = Self { ratio: 1.0, is_parent_based: true };
}

/// Decides which requests are traced.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// Traces with a lower number are recorded; numbers have 63 bits.
    threshold: u64,
    sequence: AtomicU64,
}

impl Sampler {
    /// Creates a sampler with a random seed.
    #[must_use]
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        let threshold = (sampling.ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
        Self { sampling, threshold, sequence: AtomicU64::new(seed) }
    }

    /// Returns whether a request is traced.
    pub fn is_sampled(&self, parent: Option<&TraceParent>) -> bool {
        match parent {
            Some(parent) if self.sampling.is_parent_based => parent.is_sampled,
            // As the SDKs decide, so that all services agree on a trace.
            Some(parent) => (parent.trace_id as u64) >> 1 < self.threshold,
            None => self.random() >> 1 < self.threshold,
        }
    }

    /// Returns the next number of a sequence that is random enough for sampling.
    fn random(&self) -> u64 {
        let mut bits = self.sequence.fetch_add(STEP, Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(ratio: f64, is_parent_based: bool) -> Sampler {
        Sampler::new(Sampling { ratio, is_parent_based }, 7)
    }

    fn parent(trace_id: u128, is_sampled: bool) -> TraceParent {
        TraceParent { trace_id, span_id: 1, is_sampled }
    }

    #[test]
    fn request_follows_its_parent() {
        for ratio in [0.0, 1.0] {
            let sampler = sampler(ratio, true);
            assert!(sampler.is_sampled(Some(&parent(u128::MAX, true))));
            assert!(!sampler.is_sampled(Some(&parent(1, false))));
        }
    }

    #[test]
    fn ratio_applies_to_trace_id_if_parent_does_not_decide() {
        let sampler = sampler(0.5, false);
        assert!(sampler.is_sampled(Some(&parent(1, false))));
        assert!(!sampler.is_sampled(Some(&parent(u128::from(u64::MAX), true))));
    }

    #[test]
    fn requests_without_parent_are_sampled_by_ratio() {
        let sampled = |ratio| {
            let sampler = sampler(ratio, true);
            (0..10_000).filter(|_| sampler.is_sampled(None)).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        assert!((50..200).contains(&sampled(0.01)), "{}", sampled(0.01));
    }
}

//! Values of the metrics at one time, independent of the format in which they are
//! exported.

use std::borrow::Cow;

use leasehold_store::stats::Distribution;

use super::{exemplars::Exemplar, table::Metric};

/// A metric with its current values.
#[derive(Debug)]
pub struct Family {
    /// Row of the table.
    pub metric: &'static Metric,
    /// Values, one for each combination of labels.
    pub samples: Vec<Sample>,
    /// Traced durations, by the bucket of the only sample.
    pub exemplars: Vec<(usize, Exemplar)>,
}

/// Value with its labels.
#[derive(Debug)]
pub struct Sample {
    /// Values of the labels, in the order of [`Metric::labels`].
    pub labels: Vec<Cow<'static, str>>,
    /// The value.
    pub value: Value,
}

/// Value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Whole number.
    Count(u64),
    /// Other number.
    Number(f64),
    /// Distribution of durations.
    Durations(Distribution),
}

impl Family {
    /// Creates the family of a metric without labels.
    pub(super) fn single(metric: &'static Metric, value: Value) -> Self {
        Self::labeled::<&str, 0>(metric, [([], value)])
    }

    /// Creates the family of a metric without labels, whose value is a whole number.
    pub(super) fn count(metric: &'static Metric, count: u64) -> Self {
        Self::single(metric, Value::Count(count))
    }

    /// Creates the family of a metric with labels.
    pub(super) fn labeled<L: Into<Cow<'static, str>>, const N: usize>(
        metric: &'static Metric,
        samples: impl IntoIterator<Item = ([L; N], Value)>,
    ) -> Self {
        debug_assert_eq!(metric.labels.len(), N, "{}", metric.name);
        let sample = |(labels, value): ([L; N], Value)| Sample {
            labels: labels.map(Into::into).into(),
            value,
        };
        let samples = samples.into_iter().map(sample).collect();
        Self { metric, samples, exemplars: Vec::new() }
    }
}

//! Text formats of Prometheus: OpenMetrics, and the classic format for readers that do
//! not request it.

use std::{
    borrow::Cow,
    fmt::{self, Write},
    time::UNIX_EPOCH,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::Registry,
};

use super::{
    exemplars::Exemplar,
    family::{Family, Value},
    table::Kind,
};

/// Text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
    /// Classic text format 0.0.4.
    Classic,
}

impl Format {
    /// Chooses the format by the `Accept` header of a request.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let is_open = accept.contains("application/openmetrics-text");
        if is_open { Self::OpenMetrics } else { Self::Classic }
    }

    /// Returns the content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Formats all values.
#[must_use]
pub fn encode(families: Vec<Family>, format: Format) -> String {
    let mut exemplars: Vec<(&'static str, usize, Exemplar)> = Vec::new();
    for family in &families {
        let name = family.metric.name;
        exemplars.extend(family.exemplars.iter().map(|(bucket, one)| (name, *bucket, *one)));
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Values { families, format }));
    let mut text = String::new();
    // Writing to a string can't fail.
    _ = match format {
        Format::OpenMetrics => text::encode(&mut text, &registry),
        Format::Classic => text::encode_registry(&mut text, &registry),
    };
    if format == Format::OpenMetrics && !exemplars.is_empty() {
        text = with_exemplars(&text, &exemplars);
    }
    text
}

/// Adds exemplars to the lines of their buckets. The encoder writes only exemplars of its
/// own histograms, which take two locks for each duration.
fn with_exemplars(text: &str, exemplars: &[(&'static str, usize, Exemplar)]) -> String {
    let mut out = String::with_capacity(text.len() + 128 * exemplars.len());
    let (mut before, mut bucket) = ("", 0);
    for line in text.lines() {
        out.push_str(line);
        if let Some((name, _)) = line.split_once("_bucket{") {
            bucket = if name == before { bucket + 1 } else { 0 };
            before = name;
            let here = exemplars.iter().find(|(of, at, _)| *of == name && *at == bucket);
            if let Some((_, _, Exemplar { trace_id, length, at })) = here {
                let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                let length = length.as_secs_f64();
                _ = write!(out, " # {{trace_id=\"{trace_id:032x}\"}} {length} {at:.3}");
            }
        }
        out.push('\n');
    }
    out
}

#[derive(Debug)]
struct Values {
    families: Vec<Family>,
    format: Format,
}

impl Collector for Values {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.families {
            let metric = family.metric;
            // In the classic format, the suffix is part of the name.
            let name = match self.format {
                Format::OpenMetrics => Cow::Borrowed(metric.name),
                Format::Classic => Cow::Owned(metric.sample_name()),
            };
            let about = format!("{}.", metric.about);
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut encoder = encoder.encode_descriptor(&name, &about, None, kind)?;
            for sample in &family.samples {
                if metric.labels.is_empty() {
                    self.value(metric.kind, &sample.value, &mut encoder)?;
                } else {
                    let values = sample.labels.iter().map(AsRef::as_ref);
                    let labels: Vec<(&str, &str)> =
                        metric.labels.iter().copied().zip(values).collect();
                    let mut encoder = encoder.encode_family(&labels)?;
                    self.value(metric.kind, &sample.value, &mut encoder)?;
                }
            }
        }
        Ok(())
    }
}

impl Values {
    fn value(&self, kind: Kind, value: &Value, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let has_suffix = kind == Kind::Counter && self.format == Format::OpenMetrics;
        match value {
            Value::Count(count) if has_suffix => {
                encoder.encode_counter::<NoLabelSet, _, u64>(count, None)
            }
            Value::Number(number) if has_suffix => {
                encoder.encode_counter::<NoLabelSet, _, u64>(number, None)
            }
            Value::Count(count) => encoder.encode_gauge(count),
            Value::Number(number) => encoder.encode_gauge(number),
            Value::Durations(durations) => encoder.encode_histogram::<NoLabelSet>(
                durations.sum,
                durations.count(),
                &durations.buckets,
                None,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_store::stats::Histogram;

    use super::{
        super::table::{GRANTS, LOCK_GRANTS, WAIT},
        *,
    };

    fn families() -> Vec<Family> {
        let wait = Histogram::new(&[0.5, 1.0]);
        let length = Duration::from_millis(750);
        let bucket = wait.observe(length);
        let at = UNIX_EPOCH + Duration::from_millis(1_500);
        let mut waited = Family::single(&WAIT, Value::Durations(wait.read()));
        waited.exemplars.push((bucket, Exemplar { trace_id: 0xabc, length, at }));
        vec![
            Family::labeled(&GRANTS, [(["lease"], Value::Count(2))]),
            waited,
            Family::labeled(&LOCK_GRANTS, [(["default", "a\"\\\nb"], Value::Number(1.5))]),
        ]
    }

    #[test]
    fn open_metrics_have_exemplars_and_an_end() {
        let text = encode(families(), Format::OpenMetrics);
        assert!(text.contains("# TYPE leasehold_grants counter\n"), "{text}");
        assert!(text.contains("leasehold_grants_total{source=\"lease\"} 2\n"), "{text}");
        let traced = "leasehold_wait_seconds_bucket{le=\"1.0\"} 1 # {trace_id=\"";
        let traced = format!("{traced}00000000000000000000000000000abc\"}} 0.75 1.500\n");
        assert!(text.contains(&traced), "{text}");
        assert!(text.contains("{namespace=\"default\",lock=\"a\\\"\\\\\\nb\"} 1.5\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn classic_format_has_full_names_and_no_exemplars() {
        let text = encode(families(), Format::Classic);
        assert!(text.contains("# TYPE leasehold_grants_total counter\n"), "{text}");
        assert!(text.contains("leasehold_grants_total{source=\"lease\"} 2\n"), "{text}");
        assert!(text.contains("leasehold_wait_seconds_bucket{le=\"+Inf\"} 1\n"), "{text}");
        assert!(!text.contains("trace_id") && !text.contains("EOF"), "{text}");
    }

    #[test]
    fn format_follows_the_accept_header() {
        let open = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(Format::accepted(open), Format::OpenMetrics);
        assert_eq!(Format::accepted("text/plain"), Format::Classic);
        assert_eq!(Format::accepted(""), Format::Classic);
    }
}

//! Export of metrics by OTLP: the values of `/metrics`, sent at an interval.
//!
//! The SDK accepts no values that are counted elsewhere, except for counters and gauges.
//! The request is therefore built here, from the same values as the text formats.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry_http::{HttpClient as _, Request};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_proto::{
    tonic::{
        collector::metrics::v1::{
            ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient,
        },
        common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
        metrics::v1::{
            AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric,
            NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, metric::Data,
            number_data_point,
        },
    },
    transform::common::tonic::ResourceAttributesWithSchema,
};
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tokio::runtime::Handle;
use tonic::{
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
    transport::{Channel, Endpoint},
};

use super::{Exporter, Protocol, client::HttpClient};
use crate::telemetry::metrics::{Family, Kind, Sample, Value};
use leasehold_store::stats::Distribution;
use leasehold_time::clock::wall;

/// Variables with headers of an export, by precedence.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// Exporter of metrics. Cheap to clone.
#[derive(Clone)]
pub struct MetricExporter {
    sender: Sender,
    headers: Arc<[(String, String)]>,
    /// Attributes of this process.
    resource: Arc<[KeyValue]>,
    started: SystemTime,
    /// Interval of exports.
    pub interval: Duration,
    timeout: Duration,
    runtime: Handle,
}

#[derive(Clone)]
enum Sender {
    Grpc(MetricsServiceClient<Channel>),
    Http(Arc<HttpClient>, String),
}

impl MetricExporter {
    /// Creates an exporter. Connects with its first export.
    pub(super) fn new(
        settings: &Exporter,
        interval: Duration,
        resource: &Resource,
        runtime: &Handle,
    ) -> Result<Self, ExporterBuildError> {
        let sender = match settings.protocol {
            Protocol::Grpc => {
                let _entered = runtime.enter();
                Sender::Grpc(MetricsServiceClient::new(channel(settings)?))
            }
            Protocol::Http => {
                let client = HttpClient::new(runtime, settings.timeout)?;
                Sender::Http(client.into(), settings.endpoint.clone())
            }
        };
        let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let headers = HEADERS.into_iter().find_map(variable).unwrap_or_default();
        Ok(Self {
            sender,
            headers: parse_headers(&headers).into(),
            resource: ResourceAttributesWithSchema::from(resource).attributes.0.into(),
            started: wall(),
            interval,
            timeout: settings.timeout,
            runtime: runtime.clone(),
        })
    }

    /// Sends the current values, within the timeout.
    ///
    /// # Errors
    /// If the collector does not accept them. The message contains no secret.
    pub async fn export(&self, families: &[Family]) -> Result<(), String> {
        let request = self.request(families);
        let sent = match self.sender.clone() {
            Sender::Grpc(mut client) => {
                let mut request = tonic::Request::new(request);
                for (name, value) in &*self.headers {
                    let name = AsciiMetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes());
                    if let (Ok(name), Ok(value)) = (name, AsciiMetadataValue::try_from(value)) {
                        request.metadata_mut().insert(name, value);
                    }
                }
                request.set_timeout(self.timeout);
                self.runtime.spawn(async move {
                    let sent = client.export(request).await;
                    sent.map(drop).map_err(|status| format!("gRPC status {:?}", status.code()))
                })
            }
            Sender::Http(client, endpoint) => {
                let mut post =
                    Request::post(endpoint).header("content-type", "application/x-protobuf");
                for (name, value) in &*self.headers {
                    post = post.header(name, value);
                }
                let post = post.body(request.encode_to_vec().into());
                self.runtime.spawn(async move {
                    let post = post.map_err(|_| "invalid header".to_owned())?;
                    let answer =
                        client.send_bytes(post).await.map_err(|error| error.to_string())?;
                    let status = answer.status();
                    status.is_success().then_some(()).ok_or_else(|| format!("HTTP status {status}"))
                })
            }
        };
        tokio::select! {
            sent = sent => sent.unwrap_or_else(|error| Err(error.to_string())),
            () = leasehold_runtime::sleep(self.timeout) => {
                Err(format!("no response within {:?}", self.timeout))
            }
        }
    }

    fn request(&self, families: &[Family]) -> ExportMetricsServiceRequest {
        let times = (nanos(self.started), nanos(wall()));
        let metrics = families.iter().map(|family| metric(family, times)).collect();
        let scope = InstrumentationScope {
            name: "leasehold".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        let resource = opentelemetry_proto::tonic::resource::v1::Resource {
            attributes: self.resource.to_vec(),
            ..Default::default()
        };
        let scope_metrics =
            vec![ScopeMetrics { scope: Some(scope), metrics, ..Default::default() }];
        let resource_metrics =
            vec![ResourceMetrics { resource: Some(resource), scope_metrics, ..Default::default() }];
        ExportMetricsServiceRequest { resource_metrics }
    }
}

/// Creates a connection that is established with its first use.
fn channel(settings: &Exporter) -> Result<Channel, ExporterBuildError> {
    let problem = |_| ExporterBuildError::InvalidConfiguration("endpoint of metrics".to_owned());
    let mut endpoint = Endpoint::from_shared(settings.endpoint.clone()).map_err(problem)?;
    if let Some(tls) = super::tls(settings) {
        endpoint = endpoint.tls_config(tls).map_err(problem)?;
    }
    Ok(endpoint.timeout(settings.timeout).connect_lazy())
}

/// Parses `KEY=VALUE,KEY=VALUE`, with percent-encoded values. Leaves out invalid pairs.
fn parse_headers(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .filter_map(|(name, value)| {
            let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((name.trim().to_owned(), value.into_owned()))
        })
        .collect()
}

/// Converts a metric. The times are those of the start of the process and of the values.
fn metric(family: &Family, times: (u64, u64)) -> Metric {
    let samples = &family.samples;
    let numbers = || samples.iter().filter_map(|sample| number(family, sample, times)).collect();
    let cumulative = AggregationTemporality::Cumulative.into();
    let data = match family.metric.kind {
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        Kind::Counter => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: samples
                .iter()
                .filter_map(|sample| histogram(family, sample, times))
                .collect(),
            aggregation_temporality: cumulative,
        }),
    };
    Metric {
        name: family.metric.name.to_owned(),
        description: format!("{}.", family.metric.about),
        unit: if family.metric.name.ends_with("_seconds") { "s" } else { "" }.to_owned(),
        data: Some(data),
        ..Default::default()
    }
}

fn number(family: &Family, sample: &Sample, times: (u64, u64)) -> Option<NumberDataPoint> {
    use number_data_point::Value::{AsDouble, AsInt};
    let value = match &sample.value {
        Value::Count(count) => AsInt(i64::try_from(*count).unwrap_or(i64::MAX)),
        Value::Number(number) => AsDouble(*number),
        Value::Durations(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(family, sample),
        start_time_unix_nano: times.0,
        time_unix_nano: times.1,
        value: Some(value),
        ..Default::default()
    })
}

fn histogram(family: &Family, sample: &Sample, times: (u64, u64)) -> Option<HistogramDataPoint> {
    let Value::Durations(Distribution { sum, buckets }) = &sample.value else { return None };
    let bounds = buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
    let exemplars = family.exemplars.iter().map(|(_, one)| Exemplar {
        time_unix_nano: nanos(one.at),
        trace_id: one.trace_id.to_be_bytes().into(),
        value: Some(exemplar::Value::AsDouble(one.length.as_secs_f64())),
        ..Default::default()
    });
    Some(HistogramDataPoint {
        attributes: attributes(family, sample),
        start_time_unix_nano: times.0,
        time_unix_nano: times.1,
        count: buckets.iter().map(|(_, count)| count).sum(),
        sum: Some(*sum),
        bucket_counts: buckets.iter().map(|(_, count)| *count).collect(),
        explicit_bounds: bounds.collect(),
        exemplars: exemplars.collect(),
        ..Default::default()
    })
}

fn attributes(family: &Family, sample: &Sample) -> Vec<KeyValue> {
    let pairs = family.metric.labels.iter().zip(&sample.labels);
    let text = |value: &str| any_value::Value::StringValue(value.to_owned());
    pairs
        .map(|(key, value)| KeyValue {
            key: (*key).to_owned(),
            value: Some(AnyValue { value: Some(text(value)) }),
            ..Default::default()
        })
        .collect()
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        let headers = parse_headers("api-key=a%20b, x = y,broken");
        let expected = [("api-key", "a b"), ("x", "y")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}

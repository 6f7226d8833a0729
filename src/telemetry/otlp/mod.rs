//! Export of telemetry by OTLP, configured by the standard variables of
//! OpenTelemetry. Off without them.
//!
//! The exporters have a runtime of their own, so that a slow collector delays neither
//! grants nor renewals. Queues are bounded; what does not fit is dropped.

mod client;
mod failures;
mod metrics;
mod resource;
mod settings;

use std::time::Duration;

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, Protocol as HttpEncoding, SpanExporter, WithExportConfig as _,
    WithHttpConfig as _, WithTonicConfig as _, tonic_types::transport::ClientTlsConfig,
};
use opentelemetry_sdk::{
    Resource,
    logs::SdkLoggerProvider,
    trace::{Sampler as SdkSampler, SdkTracerProvider},
};
use tokio::runtime::{Builder, Runtime};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

use self::{client::HttpClient, failures::FailureLimit};
pub use self::{
    metrics::MetricExporter,
    settings::{Exporter, Protocol, Settings},
};
use super::{sampler::Sampler, traces::Tracing};
use leasehold_time::Entropy;

/// Maximum time to send pending telemetry of each kind at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Targets of the exporters and their transport. Their own events are not exported,
/// because each export would cause the next one.
const EXPORTER_TARGETS: [&str; 7] =
    ["h2", "hyper", "opentelemetry", "reqwest", "rustls", "tonic", "tower"];

/// Exporters of this process. [`Self::shutdown`] sends what is pending.
pub struct Otlp {
    settings: Settings,
    runtime: Runtime,
    /// Seed of the sampling.
    seed: u64,
    traces: Option<SdkTracerProvider>,
    metrics: Option<MetricExporter>,
    logs: Option<SdkLoggerProvider>,
}

impl Otlp {
    /// Starts the exporters that the variables configure; `None` if there are none.
    ///
    /// # Errors
    /// If a value can't be used. The message contains no secret.
    pub fn start() -> Result<Option<Self>, String> {
        Settings::from_env()?.map(Self::start_with).transpose()
    }

    /// Like [`Self::start`], without metrics and logs.
    ///
    /// # Errors
    /// As above.
    pub fn start_traces() -> Result<Option<Self>, String> {
        let settings = Settings::from_env()?.filter(|settings| settings.traces.is_some());
        let traces_only = |settings| Settings { metrics: None, logs: None, ..settings };
        settings.map(traces_only).map(Self::start_with).transpose()
    }

    fn start_with(settings: Settings) -> Result<Self, String> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .enable_all()
            .build()
            .map_err(|error| format!("can't start the exporters: {error}"))?;
        let mut entropy = Entropy::system().map_err(|error| error.to_string())?;
        let resource = resource::this_process(&mut entropy);
        let problem = |error: ExporterBuildError| error.to_string();
        let metrics = settings.metrics.as_ref().map(|metrics| {
            MetricExporter::new(metrics, settings.metric_interval, &resource, runtime.handle())
        });
        let metrics = metrics.transpose().map_err(problem)?;
        let (traces, logs) = {
            // gRPC connections start in the current runtime.
            let _entered = runtime.enter();
            let exporters = Exporters { runtime: &runtime, resource };
            let traces = settings.traces.as_ref().map(|traces| exporters.traces(traces));
            let logs = settings.logs.as_ref().map(|logs| exporters.logs(logs));
            (traces.transpose().map_err(problem)?, logs.transpose().map_err(problem)?)
        };
        let seed = entropy.bits() as u64;
        if let Some(traces) = &traces {
            // Storage calls get their tracer from here.
            opentelemetry::global::set_tracer_provider(traces.clone());
        }
        Ok(Self { settings, runtime, seed, traces, metrics, logs })
    }

    /// Settings of the exporters.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Provider of tracers, unless traces are off.
    #[must_use]
    pub const fn traces(&self) -> Option<&SdkTracerProvider> {
        self.traces.as_ref()
    }

    /// Start of traces, unless they are off.
    #[must_use]
    pub fn tracing(&self) -> Option<Tracing> {
        let sampler = Sampler::new(self.settings.sampling, self.seed);
        Some(Tracing::new(self.traces.as_ref()?, sampler))
    }

    /// Exporter of metrics, unless they are off.
    #[must_use]
    pub fn metrics(&self) -> Option<MetricExporter> {
        self.metrics.clone()
    }

    /// Layers for log events: they limit the lines of the exporters, and export all
    /// others unless logs are off.
    #[must_use]
    pub fn log_layers<S>(&self) -> Vec<Box<dyn Layer<S> + Send + Sync>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut layers = vec![FailureLimit::default().boxed()];
        layers.extend(self.logs.as_ref().map(|logs| {
            let bridge = OpenTelemetryTracingBridge::new(logs);
            bridge.with_filter(filter_fn(|metadata| !is_exporter(metadata))).boxed()
        }));
        layers
    }

    /// Stops the exporters without sending what is pending.
    pub fn abort(self) {
        self.runtime.shutdown_background();
    }

    /// Sends pending telemetry within a limited time, and stops the exporters.
    pub fn shutdown(self) {
        let Self { runtime, traces, logs, .. } = self;
        let traces = traces.map(|traces| traces.shutdown_with_timeout(FLUSH_TIMEOUT));
        let logs = logs.map(|logs| logs.shutdown_with_timeout(FLUSH_TIMEOUT));
        for error in [traces, logs].into_iter().flatten().filter_map(Result::err) {
            tracing::warn!(%error, "failed to export the last telemetry");
        }
        runtime.shutdown_background();
    }
}

/// Returns whether an event comes from the exporters or their transport.
fn is_exporter(metadata: &Metadata<'_>) -> bool {
    EXPORTER_TARGETS.iter().any(|target| metadata.target().starts_with(target))
}

/// Common parts of the exporters.
struct Exporters<'a> {
    runtime: &'a Runtime,
    resource: Resource,
}

impl Exporters<'_> {
    fn traces(&self, settings: &Exporter) -> Result<SdkTracerProvider, ExporterBuildError> {
        let exporter = match settings.protocol {
            Protocol::Grpc => {
                let builder = SpanExporter::builder().with_tonic();
                match tls(settings) {
                    Some(tls) => builder.with_tls_config(tls).build(),
                    None => builder.build(),
                }
            }
            Protocol::Http => SpanExporter::builder()
                .with_http()
                .with_protocol(HttpEncoding::HttpBinary)
                .with_http_client(HttpClient::new(self.runtime.handle(), settings.timeout)?)
                .build(),
        };
        Ok(SdkTracerProvider::builder()
            .with_resource(self.resource.clone())
            // Spans are created only for requests that are sampled.
            .with_sampler(SdkSampler::AlwaysOn)
            .with_batch_exporter(exporter?)
            .build())
    }

    fn logs(&self, settings: &Exporter) -> Result<SdkLoggerProvider, ExporterBuildError> {
        let exporter = match settings.protocol {
            Protocol::Grpc => {
                let builder = LogExporter::builder().with_tonic();
                match tls(settings) {
                    Some(tls) => builder.with_tls_config(tls).build(),
                    None => builder.build(),
                }
            }
            Protocol::Http => LogExporter::builder()
                .with_http()
                .with_protocol(HttpEncoding::HttpBinary)
                .with_http_client(HttpClient::new(self.runtime.handle(), settings.timeout)?)
                .build(),
        };
        Ok(SdkLoggerProvider::builder()
            .with_resource(self.resource.clone())
            .with_batch_exporter(exporter?)
            .build())
    }
}

/// Returns the settings of TLS for a gRPC endpoint that uses it: the certificates that
/// this machine trusts.
fn tls(settings: &Exporter) -> Option<ClientTlsConfig> {
    settings.endpoint.starts_with("https:").then(|| ClientTlsConfig::new().with_enabled_roots())
}

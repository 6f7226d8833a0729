//! Traces of `lock` and `elect`. The trace context arrives in the variables
//! TRACEPARENT and TRACESTATE, and the command receives it in the same variables.

use std::process::ExitCode;

use opentelemetry::{propagation::TextMapPropagator as _, trace::TracerProvider as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{
    Layer as _, Registry, filter::filter_fn, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::{block_on, exit::Failure, options::variable, output::Output};
use crate::telemetry::{
    otlp::Otlp,
    traces::{RemoteContext, Tracing},
};

/// Runs a command within a span, if the variables of OpenTelemetry configure an
/// exporter. An invalid variable does not prevent the command.
pub(super) fn traced(
    name: &'static str,
    output: Output,
    command: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    let header = |name| variable(name).unwrap_or_default();
    let remote = RemoteContext::new(&header("TRACEPARENT"), &header("TRACESTATE"));
    // All tasks of the command run on this thread.
    let attached = remote.context().attach();
    let otlp = Otlp::start_traces().unwrap_or_else(|why| {
        output.note(format!("no telemetry is exported: {why}"));
        None
    });
    let Some(otlp) = otlp else { return block_on(command) };
    otlp.settings().warnings.iter().for_each(|warning| output.note(warning));
    let span = start(name, &otlp, &remote);
    let ended = block_on(command.instrument(span));
    drop(attached);
    otlp.shutdown();
    ended
}

/// Starts the span of this process, if the trace is sampled.
fn start(name: &'static str, otlp: &Otlp, remote: &RemoteContext) -> Span {
    let Some(provider) = otlp.traces() else { return Span::none() };
    if !otlp.tracing().is_some_and(|tracing: Tracing| tracing.is_sampled(remote)) {
        return Span::none();
    }
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("leasehold"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_filter(filter_fn(|metadata| metadata.target().starts_with("leasehold")));
    if Registry::default().with(spans).try_init().is_err() {
        return Span::none();
    }
    let span = tracing::info_span!(target: "leasehold", "command", otel.name = name);
    _ = span.set_parent(remote.context());
    span
}

/// Returns the variables with the trace context for the command of this process.
pub(super) fn environment() -> Vec<(&'static str, String)> {
    let mut headers = std::collections::HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
    [("TRACEPARENT", "traceparent"), ("TRACESTATE", "tracestate")]
        .into_iter()
        .filter_map(|(variable, header)| {
            headers.remove(header).filter(|value| !value.is_empty()).map(|value| (variable, value))
        })
        .collect()
}

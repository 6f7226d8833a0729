//! Spans of requests, and the trace context that is sent with them.
//!
//! Spans are those of the crate `tracing`. With the feature `opentelemetry`, requests
//! carry the context of their span, or else the current context of OpenTelemetry.

use tracing::{Span, field::Empty};

use crate::{Error, Token, pb};

/// Returns the W3C trace context of a span. None outside of a trace.
#[cfg(feature = "opentelemetry")]
pub(crate) fn context_of(span: &Span) -> Option<pb::TraceContext> {
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let of_span = (!span.is_disabled()).then(|| from_context(&span.context())).flatten();
    of_span.or_else(|| opentelemetry::Context::map_current(from_context))
}

/// Returns no context.
#[cfg(not(feature = "opentelemetry"))]
pub(crate) const fn context_of(_: &Span) -> Option<pb::TraceContext> {
    None
}

#[cfg(feature = "opentelemetry")]
fn from_context(context: &opentelemetry::Context) -> Option<pb::TraceContext> {
    use opentelemetry::trace::TraceContextExt as _;

    if !context.has_active_span() {
        return None;
    }
    let span = context.span();
    let span = span.span_context();
    let parent = leasehold_types::TraceParent {
        trace_id: u128::from_be_bytes(span.trace_id().to_bytes()),
        span_id: u64::from_be_bytes(span.span_id().to_bytes()),
        is_sampled: span.is_sampled(),
    };
    span.is_valid().then(|| pb::TraceContext {
        parent: parent.to_string(),
        state: span.trace_state().header(),
    })
}

/// Adds the current context to the metadata of a call.
pub(crate) fn add_current_to<T>(request: &mut tonic::Request<T>) {
    let Some(pb::TraceContext { parent, state }) = context_of(&Span::current()) else { return };
    for (name, value) in [("traceparent", parent), ("tracestate", state)] {
        if !value.is_empty()
            && let Ok(value) = value.parse()
        {
            request.metadata_mut().insert(name, value);
        }
    }
}

/// Creates the span of an acquire, from its call to its grant.
pub(crate) fn acquire_span(lock: &pb::LockRef) -> Span {
    tracing::info_span!(
        target: "leasehold_client",
        "acquire",
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        leasehold.lock.namespace = lock.namespace,
        leasehold.lock.name = lock.name,
        leasehold.token = Empty,
    )
}

/// Creates the span of a release.
pub(crate) fn release_span(lock: &pb::LockRef, token: Token) -> Span {
    tracing::info_span!(
        target: "leasehold_client",
        "release",
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        leasehold.lock.namespace = lock.namespace,
        leasehold.lock.name = lock.name,
        leasehold.token = token.get(),
    )
}

/// Records the outcome of a request in its span.
pub(crate) fn record_outcome(span: &Span, outcome: Result<Option<Token>, &Error>) {
    if span.is_disabled() {
        return;
    }
    match outcome {
        Ok(Some(token)) => _ = span.record("leasehold.token", token.get()),
        Ok(None) => {}
        Err(error) => {
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", tracing::field::display(error));
        }
    }
}

#[cfg(all(test, feature = "opentelemetry"))]
mod tests {
    use opentelemetry::{
        Context,
        trace::{SpanContext, TraceContextExt as _, TraceFlags, TraceState},
    };

    use super::*;

    #[test]
    fn call_carries_current_trace_context() {
        let state = TraceState::from_key_value([("rojo", "00f0")]).unwrap();
        let span = SpanContext::new(7.into(), 9.into(), TraceFlags::SAMPLED, false, state);
        let _attached = Context::new().with_remote_span_context(span).attach();
        let mut request = tonic::Request::new(());
        add_current_to(&mut request);
        let header = |name| request.metadata().get(name).unwrap().to_str().unwrap();
        let expected = format!("00-{:032x}-{:016x}-01", 7, 9);
        assert_eq!(header("traceparent"), expected);
        assert_eq!(header("tracestate"), "rojo=00f0");
        let lock = pb::LockRef { namespace: "default".into(), name: "orders".into() };
        assert_eq!(context_of(&acquire_span(&lock)).unwrap().parent, expected);
    }

    #[test]
    fn call_outside_trace_has_no_trace_context() {
        let mut request = tonic::Request::new(());
        add_current_to(&mut request);
        assert!(request.metadata().is_empty());
    }
}

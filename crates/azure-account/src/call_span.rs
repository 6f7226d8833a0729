//! Trace span of a call to the account. A call has one only if the current context of
//! OpenTelemetry belongs to a sampled trace.
//!
//! The attributes follow the semantic conventions for HTTP clients. The URL has no
//! query, which may be a shared access signature, and no header is recorded.

use azure_core::http::{Request, Url};
use leasehold_types::TraceParent;
use opentelemetry::{
    Context, KeyValue, global,
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};

/// Name of the tracer.
const TRACER: &str = "leasehold_azure";

/// Name of the operation, which the transport adds to the method of the request.
struct Operation(&'static str);

/// Span of one call.
pub struct CallSpan(Option<Context>);

impl CallSpan {
    /// Starts a span as a child of the current one.
    #[must_use]
    pub fn start(operation: &'static str, purpose: &'static str) -> Self {
        Self(Context::map_current(|parent| {
            if !parent.span().span_context().is_sampled() {
                return None;
            }
            let tracer = global::tracer(TRACER);
            let builder =
                tracer.span_builder(operation).with_kind(SpanKind::Client).with_attributes([
                    KeyValue::new("leasehold.storage.operation", operation),
                    KeyValue::new("leasehold.storage.purpose", purpose),
                ]);
            let span = builder.start_with_context(&tracer, parent);
            Some(parent.with_span(span).with_value(Operation(operation)))
        }))
    }

    /// Adds an event.
    pub fn event(&self, name: &'static str) {
        if let Some(context) = &self.0 {
            context.span().add_event(name, Vec::new());
        }
    }

    /// Runs the call within the span.
    pub async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        match &self.0 {
            Some(context) => call.with_context(context.clone()).await,
            None => call.await,
        }
    }

    /// Ends the span. An error has a human-readable cause.
    pub fn end(self, error: Option<impl FnOnce() -> String>) {
        let Some(context) = self.0 else { return };
        if let Some(error) = error {
            context.span().set_status(Status::error(error()));
        }
        context.span().end();
    }
}

/// Adds the trace context to a request, and the request to the span.
pub(crate) fn on_request(request: &mut Request) {
    Context::map_current(|context| {
        let span = context.span();
        let span_context = span.span_context();
        if !span_context.is_sampled() {
            return;
        }
        let parent = TraceParent {
            trace_id: u128::from_be_bytes(span_context.trace_id().to_bytes()),
            span_id: u64::from_be_bytes(span_context.span_id().to_bytes()),
            is_sampled: true,
        };
        request.insert_header("traceparent", parent.to_string());
        let state = span_context.trace_state().header();
        if !state.is_empty() {
            request.insert_header("tracestate", state);
        }
        let (method, url) = (request.method().as_str(), request.url());
        if let Some(Operation(operation)) = context.get() {
            span.update_name(format!("{method} {operation}"));
        }
        span.set_attributes([
            KeyValue::new("http.request.method", method.to_owned()),
            KeyValue::new("url.full", without_query(url)),
            KeyValue::new("server.address", url.host_str().unwrap_or_default().to_owned()),
            KeyValue::new("server.port", i64::from(url.port_or_known_default().unwrap_or(0))),
        ]);
    });
}

/// Records the outcome of the request in its span: the status, or `None` without a
/// response.
pub(crate) fn on_response(status: Option<u16>) {
    Context::map_current(|context| {
        let span = context.span();
        if !span.is_recording() {
            return;
        }
        match status {
            Some(status) => {
                span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
                if status >= 400 {
                    span.set_attribute(KeyValue::new("error.type", status.to_string()));
                }
            }
            None => span.set_attribute(KeyValue::new("error.type", "no_response")),
        }
    });
}

/// Returns a URL without its query and its user information.
fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails only for URLs without a host.
    _ = url.set_username("");
    _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_url_has_no_query_or_password() {
        let url = "https://user:word@acme.blob.core.windows.net/c/locks?sv=1&sig=mysecret#x";
        let recorded = without_query(&url.parse().unwrap());
        assert_eq!(recorded, "https://acme.blob.core.windows.net/c/locks");
    }

    #[test]
    fn request_outside_trace_has_no_trace_context() {
        let url = "https://acme.blob.core.windows.net/c".parse().unwrap();
        let mut request = Request::new(url, azure_core::http::Method::Get);
        on_request(&mut request);
        assert_eq!(request.headers().iter().count(), 0);
        assert!(CallSpan::start("read", "poll").0.is_none());
    }
}

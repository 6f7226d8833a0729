//! Trace context of calls, and the spans of unary calls.

use axum::{
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use opentelemetry::{
    KeyValue,
    trace::{FutureExt as _, Status, TraceContextExt as _},
};
use tonic::{Code, codegen::http::HeaderMap, service::Routes};

use crate::telemetry::traces::{RemoteContext, Tracing};

/// Unary calls, which have a span. Streams last longer than a span should.
const CALLS: [&str; 8] = [
    "/leasehold.v1.LockService/Inspect",
    "/leasehold.v1.LockService/List",
    "/leasehold.v1.LockService/Break",
    "/leasehold.v1.LockService/CheckToken",
    "/leasehold.v1.ElectionService/Leader",
    "/leasehold.v1.ElectionService/StepDown",
    "/leasehold.v1.DiagnosticsService/Explain",
    "/leasehold.v1.DiagnosticsService/Overview",
];

/// Returns the trace context in the headers of a call.
pub(super) fn remote_context(headers: &HeaderMap) -> RemoteContext {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    RemoteContext::new(header("traceparent"), header("tracestate"))
}

/// Adds spans to the unary calls that are sampled.
pub(super) fn traced(routes: Routes, tracing: Tracing) -> Routes {
    let layer = middleware::from_fn_with_state(tracing, trace_call);
    Routes::from(routes.into_axum_router().layer(layer))
}

async fn trace_call(State(tracing): State<Tracing>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !CALLS.contains(&path) {
        return next.run(request).await;
    }
    let remote = remote_context(request.headers());
    if !tracing.is_sampled(&remote) {
        return next.run(request).await;
    }
    let context = tracing.start_call(&remote, path.trim_start_matches('/'));
    let response = next.run(request).with_context(context.clone()).await;
    let span = context.span();
    // A call that failed has its status in the headers, because there is no body.
    let code = response.headers().get("grpc-status");
    let name = code.map_or("OK", |code| code_name(Code::from_bytes(code.as_bytes())));
    span.set_attribute(KeyValue::new("rpc.response.status_code", name));
    if name != "OK" {
        span.set_attribute(KeyValue::new("error.type", name));
        span.set_status(Status::error(""));
    }
    span.end();
    response
}

/// Name of a gRPC status code in the semantic conventions.
const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

//! Receiver of telemetry: a real OTLP server, over gRPC or over HTTP.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{
            ExportLogsServiceRequest, ExportLogsServiceResponse,
            logs_service_server::{LogsService, LogsServiceServer},
        },
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{AnyValue, KeyValue, any_value::Value},
    logs::v1::LogRecord,
    metrics::v1::Metric,
    resource::v1::Resource,
    trace::v1::{Span, span::Event},
};
use prost::Message;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::until;

/// Header that the exporters are configured to send.
pub const API_KEY: &str = "canary-of-an-api-key";

/// Receiver that serves until it is dropped.
pub struct Receiver {
    endpoint: String,
    protocol: &'static str,
    received: Store,
    /// Serves also while a test waits for a process.
    runtime: Option<Runtime>,
}

/// Everything that arrived.
#[derive(Default)]
struct Received {
    spans: Vec<(Resource, Span)>,
    logs: Vec<(Resource, LogRecord)>,
    metrics: Vec<(Resource, Metric)>,
    /// Encoded requests.
    bytes: Vec<u8>,
    api_keys: usize,
}

#[derive(Clone, Default)]
struct Store(Arc<Mutex<Received>>);

impl Receiver {
    /// Starts a gRPC server.
    pub fn grpc() -> Self {
        let runtime = runtime();
        let listener = {
            let _entered = runtime.enter();
            listener()
        };
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let received = Store::default();
        let server = Server::builder()
            .add_service(TraceServiceServer::new(received.clone()))
            .add_service(LogsServiceServer::new(received.clone()))
            .add_service(MetricsServiceServer::new(received.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        runtime.spawn(async move { server.await.unwrap() });
        Self { endpoint, protocol: "grpc", received, runtime: Some(runtime) }
    }

    /// Starts an HTTP server.
    pub fn http() -> Self {
        let runtime = runtime();
        let listener = {
            let _entered = runtime.enter();
            listener()
        };
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let received = Store::default();
        let store = received.clone();
        runtime.spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let store = store.clone();
                let service = service_fn(move |request| respond(store.clone(), request));
                let io = TokioIo::new(connection);
                tokio::spawn(http1::Builder::new().serve_connection(io, service));
            }
        });
        Self { endpoint, protocol: "http/protobuf", received, runtime: Some(runtime) }
    }

    /// Variables with which a process exports to this receiver, soon after each event.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.endpoint.clone()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", self.protocol.to_owned()),
            ("OTEL_EXPORTER_OTLP_HEADERS", format!("api-key={API_KEY}")),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
            ("OTEL_BLRP_SCHEDULE_DELAY", "50".to_owned()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200".to_owned()),
        ]
    }

    /// All spans that have arrived.
    pub fn spans(&self) -> Vec<Span> {
        self.received.lock().spans.iter().map(|(_, span)| span.clone()).collect()
    }

    /// Spans of a trace.
    pub fn trace(&self, trace_id: &[u8]) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.trace_id == trace_id).collect()
    }

    /// Waits for a span with this name that satisfies a condition.
    pub async fn span(&self, name: &str, condition: impl Fn(&Span) -> bool) -> Span {
        let wanted = |span: &Span| span.name == name && condition(span);
        until(async || self.spans().into_iter().find(|span| wanted(span))).await
    }

    /// Waits for a log record whose text contains a word.
    pub async fn log(&self, word: &str) -> (BTreeMap<String, String>, LogRecord) {
        until(async || {
            let received = self.received.lock();
            let mut logs = received.logs.iter();
            let found = logs.find(|(_, log)| text(log.body.as_ref()).contains(word))?;
            Some((attributes(&found.0.attributes), found.1.clone()))
        })
        .await
    }

    /// Waits for a metric with this name.
    pub async fn metric(&self, name: &str) -> Metric {
        until(async || {
            let received = self.received.lock();
            let found = received.metrics.iter().rev().find(|(_, metric)| metric.name == name);
            found.map(|(_, metric)| metric.clone())
        })
        .await
    }

    /// Attributes of the processes whose spans have arrived.
    pub fn resources(&self) -> Vec<BTreeMap<String, String>> {
        let received = self.received.lock();
        received.spans.iter().map(|(resource, _)| attributes(&resource.attributes)).collect()
    }

    /// Returns whether the requests contain a byte string.
    pub fn contains(&self, secret: &[u8]) -> bool {
        let received = self.received.lock();
        received.bytes.windows(secret.len()).any(|window| window == secret)
    }

    /// Number of requests with the configured header, and total size of all requests.
    pub fn counts(&self) -> (usize, usize) {
        let received = self.received.lock();
        (received.api_keys, received.bytes.len())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn listener() -> TcpListener {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    TcpListener::from_std(listener).unwrap()
}

/// Attributes as text.
pub fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    attributes.iter().map(|pair| (pair.key.clone(), text(pair.value.as_ref()))).collect()
}

/// Event of a span.
pub fn event<'a>(span: &'a Span, name: &str) -> Option<&'a Event> {
    span.events.iter().find(|event| event.name == name)
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        _ => String::new(),
    }
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.0.lock().unwrap()
    }

    fn count(&self, api_key: Option<&[u8]>, message: &impl Message) {
        let mut received = self.lock();
        received.bytes.extend(message.encode_to_vec());
        received.api_keys += usize::from(api_key == Some(API_KEY.as_bytes()));
    }

    fn on_traces(&self, api_key: Option<&[u8]>, request: ExportTraceServiceRequest) {
        self.count(api_key, &request);
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.lock().spans.extend(spans.map(|span| (resource.clone(), span)));
        }
    }

    fn on_logs(&self, api_key: Option<&[u8]>, request: ExportLogsServiceRequest) {
        self.count(api_key, &request);
        for of_resource in request.resource_logs {
            let resource = of_resource.resource.unwrap_or_default();
            let logs = of_resource.scope_logs.into_iter().flat_map(|scope| scope.log_records);
            self.lock().logs.extend(logs.map(|log| (resource.clone(), log)));
        }
    }

    fn on_metrics(&self, api_key: Option<&[u8]>, request: ExportMetricsServiceRequest) {
        self.count(api_key, &request);
        for of_resource in request.resource_metrics {
            let resource = of_resource.resource.unwrap_or_default();
            let metrics = of_resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
            self.lock().metrics.extend(metrics.map(|metric| (resource.clone(), metric)));
        }
    }
}

fn api_key<T>(request: &Request<T>) -> Option<Vec<u8>> {
    request.metadata().get("api-key").map(|value| value.as_bytes().to_vec())
}

#[tonic::async_trait]
impl TraceService for Store {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.on_traces(api_key(&request).as_deref(), request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Store {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.on_logs(api_key(&request).as_deref(), request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Store {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.on_metrics(api_key(&request).as_deref(), request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

async fn respond(
    store: Store,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    assert_eq!(head.headers["content-type"], "application/x-protobuf");
    let api_key = head.headers.get("api-key").map(|value| value.as_bytes());
    let body = body.collect().await.unwrap().to_bytes();
    match head.uri.path() {
        "/v1/traces" => store.on_traces(api_key, Message::decode(body).unwrap()),
        "/v1/logs" => store.on_logs(api_key, Message::decode(body).unwrap()),
        "/v1/metrics" => store.on_metrics(api_key, Message::decode(body).unwrap()),
        path => panic!("unexpected path {path}"),
    }
    Ok(hyper::Response::new(Full::default()))
}

//! Telemetry of a daemon on Azurite, as an OTLP receiver decodes it.

use leasehold_protocol::v1::{
    self as pb, attach_request::Message as ToDaemon, attach_response::Message as FromDaemon,
    session_service_client::SessionServiceClient,
};
use leasehold_test_support::{
    Daemon, azurite,
    otlp::{API_KEY, Receiver, attributes, event},
    proxy::RecordedCall,
    until,
};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Streaming, transport::Endpoint};

use crate::fixture::{Fixture, wait_for};

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "b7ad6b7169203331";

/// A session without the client library.
struct Session {
    requests: UnboundedSender<pb::AttachRequest>,
    responses: Streaming<pb::AttachResponse>,
    secret: Vec<u8>,
}

impl Session {
    async fn open(daemon: &Daemon, trace_parent: Option<String>) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let open = pb::Open { protocol_version: 1, ttl_ms: 10_000, ..Default::default() };
        requests.send(message(ToDaemon::Open(open))).unwrap();
        let endpoint = Endpoint::from_shared(daemon.endpoint.clone()).unwrap();
        let mut client = SessionServiceClient::new(endpoint.connect().await.unwrap());
        let mut attach = Request::new(UnboundedReceiverStream::new(receiver));
        if let Some(parent) = trace_parent {
            attach.metadata_mut().insert("traceparent", parent.parse().unwrap());
        }
        let mut responses = client.attach(attach).await.unwrap().into_inner();
        let first = responses.message().await.unwrap().unwrap().message.unwrap();
        let FromDaemon::Opened(opened) = first else { panic!("{first:?}") };
        Self { requests, responses, secret: opened.resume_secret.to_vec() }
    }

    async fn acquire(&mut self, request: u64, name: &str, trace_parent: &str) -> pb::Granted {
        let lock = Some(pb::LockRef { namespace: String::new(), name: name.to_owned() });
        let parent = trace_parent.to_owned();
        let trace_context = Some(Box::new(pb::TraceContext { parent, ..Default::default() }));
        let acquire = pb::Acquire { request, lock, trace_context, ..Default::default() };
        self.requests.send(message(ToDaemon::Acquire(acquire))).unwrap();
        loop {
            let response = self.responses.message().await.unwrap().unwrap().message.unwrap();
            if let FromDaemon::Granted(granted) = response {
                return granted;
            }
        }
    }
}

fn message(message: ToDaemon) -> pb::AttachRequest {
    pb::AttachRequest { message: Some(message) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names of the spans with this parent, in the order of their starts.
fn children(spans: &[Span], parent: &Span) -> Vec<String> {
    let mut found: Vec<_> =
        spans.iter().filter(|span| span.parent_span_id == parent.span_id).collect();
    found.sort_by_key(|span| span.start_time_unix_nano);
    found.iter().map(|span| span.name.clone()).collect()
}

/// Storage calls that carry the trace context of a span.
fn calls_of(fixture: &Fixture, lock: &str, span: &Span) -> Vec<RecordedCall> {
    let context = format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id));
    let calls = fixture.calls(lock).into_iter();
    calls.filter(|call| call.trace_parent.as_deref() == Some(&context)).collect()
}

#[tokio::test]
async fn trace_spans_client_daemon_and_storage_calls() {
    let (fixture, receiver) = (Fixture::new().await, Receiver::grpc());
    let daemon = fixture.daemon_with_variables(&receiver.variables());
    let mut lock = daemon.command(&["lock", "orders", "--", "sh", "-c", "echo $TRACEPARENT"]);
    lock.envs(receiver.variables()).env("TRACEPARENT", format!("00-{TRACE_ID}-{SPAN_ID}-01"));
    let output = lock.output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let command = wait_for("the command", receiver.span("lock", |_| true)).await;
    assert_eq!(hex(&command.trace_id), TRACE_ID);
    assert_eq!(hex(&command.parent_span_id), SPAN_ID);
    let environment = String::from_utf8(output.stdout).unwrap();
    assert_eq!(environment.trim(), format!("00-{TRACE_ID}-{}-01", hex(&command.span_id)));

    let is_client = |span: &Span| span.kind == SpanKind::Client as i32;
    let request = wait_for("the request", receiver.span("acquire", is_client)).await;
    assert_eq!(request.parent_span_id, command.span_id);
    let is_daemon = |span: &Span| span.kind == SpanKind::Server as i32;
    let acquire = wait_for("the acquire", receiver.span("acquire", is_daemon)).await;
    assert_eq!(acquire.parent_span_id, request.span_id);
    assert!(event(&acquire, "granted").is_some());
    let about = attributes(&acquire.attributes);
    assert_eq!(about["leasehold.lock.name"], "orders");
    assert_eq!(about["leasehold.token"], attributes(&request.attributes)["leasehold.token"]);

    wait_for("the lease's release", receiver.span("PUT release", |_| true)).await;
    let spans = receiver.trace(&acquire.trace_id);
    // The first acquire of a lock creates its blob.
    let mut calls = children(&spans, &acquire);
    assert_eq!(calls.split_off(5), ["release", "lease release"]);
    calls.sort();
    assert_eq!(calls, ["HEAD read", "PUT acquire", "PUT acquire", "PUT create", "PUT write"]);
    for call in spans.iter().filter(|span| span.parent_span_id == acquire.span_id) {
        let Some((method, _)) = call.name.split_once(' ').filter(|_| is_client(call)) else {
            continue;
        };
        let about = attributes(&call.attributes);
        assert_eq!(about["http.request.method"], method);
        assert_eq!(about["server.address"], "127.0.0.1");
        assert!(about["url.full"].ends_with("/locks%2Fdefault%2Forders"), "{about:?}");
        let [sent] = &calls_of(&fixture, "orders", call)[..] else { panic!("{call:?}") };
        assert_eq!(about["http.response.status_code"], sent.status.unwrap().to_string());
    }
    for resource in receiver.resources() {
        assert_eq!(resource["service.name"], "leasehold");
        assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
        assert!(resource.contains_key("service.instance.id"), "{resource:?}");
        assert!(resource.contains_key("host.name"), "{resource:?}");
    }
}

#[tokio::test]
async fn loss_has_its_reason_as_event() {
    let (fixture, receiver) = (Fixture::new().await, Receiver::http());
    let daemon = fixture.daemon_with_variables(&receiver.variables());
    let mut session = Session::open(&daemon, None).await;
    session.acquire(1, "orders", &format!("00-{TRACE_ID}-{SPAN_ID}-01")).await;
    let mut command = daemon.command(&["break", "orders", "--reason", "worker is stuck"]);
    let broken = command.env("TRACEPARENT", "00-1-1-01").output().unwrap();
    assert!(broken.status.success(), "{broken:?}");

    let loss = wait_for("the loss", receiver.span("loss", |_| true)).await;
    let acquire = wait_for("the acquire", receiver.span("acquire", |_| true)).await;
    assert_eq!(hex(&loss.trace_id), TRACE_ID);
    assert_eq!(loss.parent_span_id, acquire.span_id);
    let lost = attributes(&event(&loss, "lost").unwrap().attributes);
    assert_eq!(lost["leasehold.reason"], "broken");
    assert_eq!(lost["leasehold.message"], "worker is stuck");
    let call = receiver.span("leasehold.v1.LockService/Break", |_| true);
    let call = wait_for("the call", call).await;
    assert_eq!(attributes(&call.attributes)["rpc.response.status_code"], "OK");
    let children = children(&receiver.trace(&call.trace_id), &call);
    assert!(children.contains(&"PUT write".to_owned()), "{children:?}");
}

#[tokio::test]
async fn renewal_has_a_linked_trace_with_its_storage_call() {
    let (fixture, receiver) = (Fixture::new().await, Receiver::grpc());
    let daemon = fixture.daemon_with_variables(&receiver.variables());
    let guard = daemon.begin(&["lock", "orders"]);
    let renewal = wait_for("a renewal", receiver.span("renewal", |_| true)).await;
    let acquire = receiver.span("acquire", |_| true).await;
    assert_eq!(renewal.links[0].span_id, acquire.span_id);
    assert_ne!(renewal.trace_id, acquire.trace_id);
    let call = wait_for("its call", receiver.span("PUT renew", |_| true)).await;
    assert_eq!(call.parent_span_id, renewal.span_id);
    assert!(attributes(&renewal.attributes).contains_key("leasehold.left"));
    drop(guard);
}

#[tokio::test]
async fn logs_arrive_over_both_protocols() {
    for receiver in [Receiver::grpc(), Receiver::http()] {
        let fixture = Fixture::new().await;
        let mut daemon = fixture.daemon_with_variables(&receiver.variables());
        let (resource, started) = wait_for("a record", receiver.log("daemon started")).await;
        assert_eq!(resource["service.name"], "leasehold");
        assert_eq!(attributes(&started.attributes)["store"], "azure");
        assert!(daemon.stop().success());
        wait_for("the last record", receiver.log("stopped")).await;
        assert!(receiver.counts().0 > 0, "the configured header was sent");
    }
}

#[tokio::test]
async fn exported_data_contains_no_secret() {
    let (fixture, receiver) = (Fixture::new().await, Receiver::grpc());
    let mut variables = receiver.variables();
    variables.push(("LEASEHOLD_LOG", "trace,h2=off,hyper=off,hyper_util=off,tower=off".to_owned()));
    let mut daemon = fixture.daemon_with_variables(&variables);
    let parent = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    let mut session = Session::open(&daemon, Some(parent)).await;
    let first = session.acquire(1, "orders", "not a trace parent").await;
    let acquire = wait_for("the acquire", receiver.span("acquire", |_| true)).await;
    assert_eq!(hex(&acquire.trace_id), TRACE_ID, "the context of the stream applies");
    let handle = first.handle.clone();
    let release = pb::Release { request: 2, handle: first.handle };
    session.requests.send(message(ToDaemon::Release(release))).unwrap();
    wait_for("the release", receiver.span("PUT release", |_| true)).await;
    let lease_ids: Vec<_> =
        fixture.calls("orders").into_iter().filter_map(|call| call.lease_id).collect();
    assert!(daemon.stop().success());

    assert!(receiver.contains(b"orders") && !lease_ids.is_empty());
    let mut secrets = vec![azurite::KEY.to_owned(), API_KEY.to_owned(), "sig=".to_owned()];
    secrets.extend(lease_ids);
    secrets.extend([hex(&handle), hex(&session.secret)]);
    for secret in secrets {
        assert!(!receiver.contains(secret.as_bytes()), "{secret}");
    }
    assert!(!receiver.contains(&handle) && !receiver.contains(&session.secret));
}

#[tokio::test]
async fn disabled_or_unsampled_daemon_sends_nothing() {
    let receiver = Receiver::grpc();
    let fixture = Fixture::new().await;
    let disabled = [("OTEL_SDK_DISABLED", "true".to_owned())];
    let mut daemon =
        fixture.daemon_with_variables(&[&receiver.variables()[..], &disabled].concat());
    assert!(daemon.run(&["lock", "orders", "--", "true"]).status.success());
    assert!(daemon.stop().success());
    assert_eq!(receiver.counts(), (0, 0));

    // The client decides that its trace is not recorded.
    let mut daemon = fixture.daemon_with_variables(&receiver.variables());
    let mut session = Session::open(&daemon, None).await;
    session.acquire(1, "orders", &format!("00-{TRACE_ID}-{SPAN_ID}-00")).await;
    session.requests.send(message(ToDaemon::Close(pb::Close {}))).unwrap();
    until(async || (fixture.lease_state("orders").await == "available").then_some(())).await;
    assert!(daemon.stop().success());
    wait_for("the last record", receiver.log("stopped")).await;
    assert!(receiver.spans().is_empty());
    assert!(fixture.calls("orders").iter().all(|call| call.trace_parent.is_none()));
}

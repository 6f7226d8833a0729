//! Traces and logs of a daemon on the embedded store, as an OTLP receiver decodes them,
//! and the settings of the exporters.

use std::{fs, time::Duration};

use leasehold_test_support::{
    Daemon,
    otlp::{API_KEY, Receiver, attributes, event},
    serve, until,
};
use opentelemetry_proto::tonic::{
    metrics::v1::{Metric, NumberDataPoint, metric::Data, number_data_point},
    trace::v1::{Span, span::SpanKind},
};
use tempfile::TempDir;

/// Names of the threads of a daemon.
fn threads(daemon: &Daemon) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.process.pid())).unwrap();
    tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap()).collect()
}

#[test]
fn exporters_start_only_if_configured() {
    let is_exporter = |name: &String| name.starts_with("otlp") || name.starts_with("OpenTelemetry");
    let daemon = Daemon::start();
    assert!(!threads(&daemon).iter().any(is_exporter), "{:?}", threads(&daemon));
    let receiver = Receiver::grpc();
    let daemon = Daemon::start_with_variables(&[], &receiver.variables());
    assert!(threads(&daemon).iter().any(is_exporter), "{:?}", threads(&daemon));
}

#[tokio::test]
async fn handoff_is_linked_to_the_acquire_before() {
    let receiver = Receiver::http();
    let daemon = Daemon::start_with_variables(&[], &receiver.variables());
    let mut first = daemon.begin(&["lock", "orders"]);
    let token = first.line();
    let second = daemon.begin(&["lock", "orders"]);
    let is_queued = |span: &Span| event(span, "queued").is_some();
    let waiters = async || {
        let shown = daemon.run(&["get", "orders", "-o", "json"]).stdout;
        String::from_utf8(shown).unwrap().contains("\"waiting\":1").then_some(())
    };
    until(waiters).await;
    first.signal(nix::sys::signal::Signal::SIGTERM);
    let acquire = receiver.span("acquire", is_queued).await;
    let handoff = receiver.span("handoff", |_| true).await;
    assert_eq!(handoff.parent_span_id, acquire.span_id);
    let has_token = |span: &Span| attributes(&span.attributes)["leasehold.token"] == token;
    let before = receiver.span("acquire", has_token).await;
    assert_eq!(handoff.links[0].span_id, before.span_id);
    let granted = attributes(&event(&acquire, "granted").unwrap().attributes);
    assert_eq!(granted["leasehold.grant.source"], "handoff");
    let release = receiver.span("release", |_| true).await;
    assert_eq!(release.parent_span_id, before.span_id);
    drop(second);
}

#[tokio::test]
async fn client_library_sends_its_trace_context() {
    let receiver = Receiver::grpc();
    let daemon = Daemon::start_with_variables(&[], &receiver.variables());
    let client = leasehold_client::Client::connect(daemon.endpoint.as_str()).await.unwrap();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let context = leasehold::telemetry::traces::RemoteContext::new(parent, "rojo=1").context();
    let attached = context.attach();
    let acquire = client.lock("orders").acquire();
    let guard = acquire.await.unwrap();
    client.inspect("orders").await.unwrap();
    drop(attached);
    for name in ["acquire", "leasehold.v1.LockService/Inspect"] {
        let span = receiver.span(name, |_| true).await;
        assert_eq!(span.kind, SpanKind::Server as i32);
        assert_eq!(span.trace_id[..2], [0x0a, 0xf7], "{name}");
        assert_eq!(span.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert_eq!(span.trace_state, "rojo=1");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn failed_call_has_its_status() {
    let receiver = Receiver::grpc();
    let daemon = Daemon::start_with_variables(&[], &receiver.variables());
    let client = leasehold_client::Client::connect(daemon.endpoint.as_str()).await.unwrap();
    // The client checks names; a namespace of a listing is checked by the daemon.
    let mut list = client.in_namespace("No Label").list("");
    assert!(list.next().await.unwrap().is_err());
    let span = receiver.span("leasehold.v1.LockService/List", |_| true).await;
    let about = attributes(&span.attributes);
    assert_eq!(about["rpc.response.status_code"], "INVALID_ARGUMENT");
    assert_eq!(about["error.type"], "INVALID_ARGUMENT");
}

#[test]
fn invalid_endpoint_prevents_the_start() {
    let dir = TempDir::new().unwrap();
    let mut command = serve(dir.path(), "127.0.0.1:0", &[]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("OTEL_EXPORTER_OTLP_ENDPOINT is invalid: use http://"), "{error}");
    assert!(!error.contains("collector"), "{error}");
}

#[test]
fn unreachable_collector_delays_the_exit_for_a_limited_time() {
    let no_receiver = Receiver::grpc().variables();
    let mut daemon = Daemon::start_with_variables(&["--log", "off"], &no_receiver);
    let output = daemon.run(&["lock", "orders", "--", "true"]);
    assert!(output.status.success(), "{output:?}");
    let started = leasehold_time::Moment::now();
    assert!(daemon.stop().success());
    // Two kinds of telemetry, 3 s each.
    assert!(leasehold_time::Moment::now().since(started) < Duration::from_secs(60));
}

#[test]
fn headers_of_exporters_are_never_printed() {
    let dir = TempDir::new().unwrap();
    let mut command = serve(dir.path(), "127.0.0.1:0", &["--log", "trace"]);
    command.envs(Receiver::grpc().variables()).stderr(std::process::Stdio::piped());
    command.env("OTEL_EXPORTER_OTLP_TRACES_HEADERS", API_KEY);
    let mut process = leasehold_test_support::Running::start(&mut command);
    process.line();
    process.signal(nix::sys::signal::Signal::SIGTERM);
    let mut stderr = process.child.stderr.take().unwrap();
    let mut log = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut log).unwrap();
    assert!(log.contains("OTEL_EXPORTER_OTLP_TRACES_HEADERS is invalid and ignored"), "{log}");
    assert!(!log.contains(API_KEY), "{log}");
}

/// Number of the data point with this attribute; 0 if there is none.
fn count(metric: &Metric, key: &str, value: &str) -> i64 {
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert!(sum.is_monotonic);
    let has = |point: &&NumberDataPoint| attributes(&point.attributes)[key] == value;
    match sum.data_points.iter().find(has).and_then(|point| point.value) {
        Some(number_data_point::Value::AsInt(count)) => count,
        None => 0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn metrics_arrive_over_both_protocols() {
    for receiver in [Receiver::grpc(), Receiver::http()] {
        let mut daemon = Daemon::start_with_variables(&[], &receiver.variables());
        assert!(daemon.run(&["lock", "orders", "--", "true"]).status.success());
        let grants = async || {
            let grants = receiver.metric("leasehold_grants").await;
            (count(&grants, "source", "lease") == 1).then_some(())
        };
        until(grants).await;
        let acquire = receiver.span("acquire", |_| true).await;
        let waits = receiver.metric("leasehold_wait_seconds").await;
        assert_eq!(waits.unit, "s");
        let Some(Data::Histogram(waits)) = &waits.data else { panic!("{waits:?}") };
        let [point] = &waits.data_points[..] else { panic!("{waits:?}") };
        assert_eq!((point.count, point.bucket_counts.len()), (1, point.explicit_bounds.len() + 1));
        assert_eq!(point.exemplars[0].trace_id, acquire.trace_id);
        // The last values are sent when the daemon stops.
        assert!(daemon.run(&["lock", "orders", "--", "true"]).status.success());
        assert!(daemon.stop().success());
        assert_eq!(count(&receiver.metric("leasehold_grants").await, "source", "lease"), 2);
    }
}

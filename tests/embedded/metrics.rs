//! Metrics of a daemon on the embedded store: a scripted scenario, the format, and the
//! table of the reference.

use std::{collections::BTreeMap, path::Path, time::Duration};

use leasehold::telemetry::metrics::{Kind, METRICS, Presence};
use leasehold_test_support::{
    Daemon,
    http_endpoint::{HttpDaemon, LONG, campaign},
    metrics::{OPEN_METRICS, Scrape, parse_with_python, promtool, scrape},
    otlp::Receiver,
    until,
};

/// Waits until a series has a value.
async fn reaches(served: &HttpDaemon, series: &str, value: f64) {
    until(async || (Scrape::of(served).await.value(series) == value).then_some(())).await;
}

/// Checks the changes of the metrics since a scrape.
async fn changed(served: &HttpDaemon, before: &Scrape, expected: &[(&str, i64)]) -> Scrape {
    let now = Scrape::of(served).await;
    let expected: BTreeMap<&str, i64> = expected.iter().copied().collect();
    assert_eq!(now.changes_since(before), expected);
    now
}

const LOCK_WAITERS: &str = "leasehold_waiters{kind=\"lock\"}";

#[tokio::test]
async fn each_event_moves_its_metrics() {
    let served = HttpDaemon::start(&[]);
    let start = Scrape::of(&served).await;
    let client = served.client(LONG).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let granted = changed(
        &served,
        &start,
        &[
            ("leasehold_sessions", 1),
            ("leasehold_sessions_opened_total", 1),
            ("leasehold_store_writes_total", 1),
            ("leasehold_grants_total{source=\"lease\"}", 1),
            ("leasehold_wait_seconds_count", 1),
            ("leasehold_lease_acquire_seconds_count", 1),
            ("leasehold_locks", 1),
            ("leasehold_held_locks", 1),
        ],
    )
    .await;

    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    let refused = "leasehold_refusals_total{reason=\"held\"}";
    let granted = changed(&served, &granted, &[(refused, 1)]).await;
    let timed_out = client.lock("a").wait(Duration::from_millis(50)).acquire().await;
    assert!(timed_out.is_err());
    let timed_out = "leasehold_refusals_total{reason=\"timed_out\"}";
    let granted = changed(&served, &granted, &[(timed_out, 1)]).await;

    let canceled = tokio::spawn(client.lock("a").acquire());
    reaches(&served, LOCK_WAITERS, 1.0).await;
    assert!(Scrape::of(&served).await.value("leasehold_oldest_wait_seconds") > 0.0);
    canceled.abort();
    reaches(&served, LOCK_WAITERS, 0.0).await;
    let granted = changed(&served, &granted, &[("leasehold_cancels_total", 1)]).await;

    let waiter = tokio::spawn(client.lock("a").acquire());
    reaches(&served, LOCK_WAITERS, 1.0).await;
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    let handed_off = changed(
        &served,
        &granted,
        &[
            ("leasehold_releases_total", 1),
            ("leasehold_hold_seconds_count", 1),
            ("leasehold_grants_total{source=\"handoff\"}", 1),
            ("leasehold_handoffs_total{scope=\"local\"}", 1),
            ("leasehold_wait_seconds_count", 1),
        ],
    )
    .await;
    assert!(
        handed_off.value("leasehold_wait_seconds_sum")
            > granted.value("leasehold_wait_seconds_sum")
    );
    next.release().await.unwrap();
    let released = [
        ("leasehold_releases_total", 1),
        ("leasehold_hold_seconds_count", 1),
        ("leasehold_locks", -1),
        ("leasehold_held_locks", -1),
    ];
    changed(&served, &handed_off, &released).await;
}

#[tokio::test]
async fn each_loss_is_counted_by_its_reason() {
    let served = HttpDaemon::start(&["--drain-timeout", "60s"]);
    let client = served.client(LONG).await;
    let lost = |reason: &str| format!("leasehold_losses_total{{reason={reason:?}}}");

    let guard = client.lock("broken").acquire().await.unwrap();
    assert!(served.daemon.run(&["break", "broken", "--reason", "test"]).status.success());
    guard.lost().await;
    reaches(&served, &lost("broken"), 1.0).await;

    let limit = Duration::from_secs(1);
    let guard = client.lock("long").max_hold_time(limit).acquire().await.unwrap();
    guard.lost().await;
    reaches(&served, &lost("max_hold_time"), 1.0).await;

    // The leader keeps its validity in any case, so it has a short one.
    let leadership = campaign(&served.client(Duration::from_secs(2)).await, "").await;
    let step_down = ["step-down", "scheduler", "--reason", "test", "--timeout", "1s"];
    let stepped = served.daemon.run(&step_down);
    assert!(stepped.status.success(), "{}", String::from_utf8_lossy(&stepped.stderr));
    leadership.lost().await;
    reaches(&served, &lost("stepped_down"), 1.0).await;

    let mut holder = served.daemon.begin(&[
        "lock",
        "left",
        "--ttl",
        "1s",
        "--",
        "sh",
        "-c",
        "echo held; sleep 60",
    ]);
    assert_eq!(holder.line(), "held");
    holder.signal(nix::sys::signal::Signal::SIGSTOP);
    reaches(&served, &lost("expired"), 1.0).await;
    let scrape = Scrape::of(&served).await;
    assert_eq!(scrape.value("leasehold_sessions_expired_total"), 1.0);
    assert_eq!(scrape.value("leasehold_hold_seconds_count"), 4.0);
    holder.signal(nix::sys::signal::Signal::SIGKILL);
}

#[tokio::test]
async fn candidates_are_counted_apart_from_waiters() {
    let served = HttpDaemon::start(&[]);
    let client = served.client(LONG).await;
    let leadership = campaign(&client, "first").await;
    let other = client.new_session();
    let candidate = tokio::spawn(async move { campaign(&other, "next").await });
    reaches(&served, "leasehold_waiters{kind=\"election\"}", 1.0).await;
    let scrape = Scrape::of(&served).await;
    assert_eq!(scrape.value(LOCK_WAITERS), 0.0);
    assert_eq!(scrape.value("leasehold_oldest_wait_seconds"), 0.0);
    assert_eq!(scrape.value("leasehold_leaderless_elections"), 0.0);
    leadership.resign().await.unwrap();
    candidate.await.unwrap().resign().await.unwrap();
}

#[tokio::test]
async fn election_without_leader_is_counted_after_crash() {
    let served = HttpDaemon::start(&[]);
    let leadership = campaign(&served.client(Duration::from_secs(3)).await, "").await;
    let served = served.restart();
    let scrape = Scrape::of(&served).await;
    assert_eq!(scrape.value("leasehold_store_available"), 0.0);
    assert!(scrape.value("leasehold_recovery_left_seconds") > 0.0);
    let client = served.client(LONG).await;
    let candidate = tokio::spawn(async move { campaign(&client, "").await });
    reaches(&served, "leasehold_leaderless_elections", 1.0).await;
    reaches(&served, "leasehold_store_available", 1.0).await;
    candidate.await.unwrap().resign().await.unwrap();
    let scrape = Scrape::of(&served).await;
    assert_eq!(scrape.value("leasehold_leaderless_elections"), 0.0);
    assert_eq!(scrape.value("leasehold_recovery_left_seconds"), 0.0);
    drop(leadership);
}

#[tokio::test]
async fn failed_write_makes_store_unavailable() {
    let served = HttpDaemon::start(&[]);
    let start = Scrape::of(&served).await;
    assert_eq!(start.value("leasehold_store_available"), 1.0);
    let data = served.daemon.dir.path().join("data");
    std::fs::rename(&data, data.with_extension("moved")).unwrap();
    // A new session writes its TTL.
    let client = served.client(LONG).await;
    assert!(client.lock("a").no_wait().acquire().await.is_err());
    let scrape = Scrape::of(&served).await;
    assert_eq!(scrape.value("leasehold_store_failed_writes_total"), 1.0, "{}", scrape.text);
    assert_eq!(scrape.value("leasehold_store_available"), 0.0);
}

#[tokio::test]
async fn series_of_single_locks_are_limited() {
    let served = HttpDaemon::start(&["--metrics-lock-names", "2"]);
    let client = served.client(LONG).await;
    for name in ["a", "b \"\\鎖", "c", "d", "a"] {
        client.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
    let scrape = Scrape::of(&served).await;
    let grants = |lock: &str, namespace: &str| {
        let labels = format!("{{namespace=\"{namespace}\",lock=\"{lock}\"}}");
        scrape.value(&format!("leasehold_lock_grants_total{labels}"))
    };
    assert_eq!(grants("a", "default"), 2.0, "{}", scrape.text);
    assert_eq!(grants("b \\\"\\\\鎖", "default"), 1.0, "{}", scrape.text);
    assert_eq!(grants("", ""), 2.0, "all other locks: {}", scrape.text);
    let samples = scrape.text.matches("leasehold_lock_grants_total{").count();
    assert_eq!(samples, 3);
    check_table(
        &scrape,
        &[Presence::Always, Presence::Embedded, Presence::LockNames, Presence::Linux],
    );
    parse_with_python(&scrape.text);
}

/// Checks that a scrape has exactly the metrics of the table that are expected.
fn check_table(scrape: &Scrape, present: &[Presence]) {
    let expected = METRICS.iter().filter(|metric| present.contains(&metric.presence));
    let kind = |kind: Kind| match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let expected: BTreeMap<_, _> =
        expected.map(|metric| (metric.name, kind(metric.kind))).collect();
    assert_eq!(scrape.types(), expected);
    for metric in METRICS.iter().filter(|metric| present.contains(&metric.presence)) {
        let sample = match metric.kind {
            Kind::Histogram => format!("{}_bucket", metric.name),
            _ => metric.sample_name(),
        };
        assert!(scrape.text.contains(&format!("\n{sample}")), "{sample} has no value");
        assert_eq!(scrape.labels(&sample), metric.labels, "{sample}");
    }
}

#[tokio::test]
async fn scrape_has_exactly_the_documented_metrics() {
    let served = HttpDaemon::start(&[]);
    let scrape = Scrape::of(&served).await;
    check_table(&scrape, &[Presence::Always, Presence::Embedded, Presence::Linux]);
    let version = format!("leasehold_build_info{{version={:?}}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(scrape.value(&version), 1.0);
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_threads",
        "process_start_time_seconds",
    ] {
        assert!(scrape.value(name) > 0.0, "{name}");
    }
}

#[tokio::test]
async fn scrapes_pass_the_parsers_of_prometheus() {
    let served = HttpDaemon::start(&["--metrics-lock-names", "10"]);
    let client = served.client(LONG).await;
    let _guard = client.lock("a\\\"b").acquire().await.unwrap();
    let reply = scrape(&served, OPEN_METRICS).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.header("content-type"), Some(kind));
    assert!(reply.body.ends_with("# EOF\n"));
    parse_with_python(&reply.body);
    let classic = scrape(&served, "text/plain").await;
    assert_eq!(classic.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    promtool(Path::new("."), &["check", "metrics"], &classic.body);
    let wrong = served.send("POST", "/metrics").await;
    assert_eq!((wrong.status, wrong.reason().as_str()), (405, "METHOD_NOT_ALLOWED"));
}

#[tokio::test]
async fn sampled_acquire_is_exemplar_of_its_bucket() {
    let receiver = Receiver::grpc();
    let arguments = ["--http-listen", "127.0.0.1:0"];
    let daemon = Daemon::start_with_variables(&arguments, &receiver.variables());
    let served = HttpDaemon::of(daemon);
    let client = served.client(LONG).await;
    let trace_id = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace_id}-b7ad6b7169203331-01");
    let context = leasehold::telemetry::traces::RemoteContext::new(&parent, "").context();
    let attached = context.attach();
    let acquire = client.lock("a").acquire();
    let guard = acquire.await.unwrap();
    drop(attached);
    let scrape = Scrape::of(&served).await;
    let exemplars = scrape.text.lines().filter(|line| line.contains(" # {"));
    let exemplars: Vec<_> = exemplars.collect();
    assert_eq!(exemplars.len(), 1, "{}", scrape.text);
    assert!(exemplars[0].starts_with("leasehold_wait_seconds_bucket{le="), "{}", exemplars[0]);
    assert!(exemplars[0].contains(&format!("# {{trace_id=\"{trace_id}\"}} ")), "{}", exemplars[0]);
    parse_with_python(&scrape.text);
    guard.release().await.unwrap();
}

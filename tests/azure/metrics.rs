//! Metrics of daemons on a storage account: renewals, storage calls, losses of leases.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use leasehold::telemetry::metrics::{METRICS, Presence};
use leasehold_test_support::{
    http_endpoint::{HttpDaemon, LONG},
    metrics::{Scrape, parse_with_python},
    proxy::{Fault, Kind, Refusal},
    until,
};

use crate::fixture::Fixture;

const HTTP: [&str; 2] = ["--http-listen", "127.0.0.1:0"];

/// Number of completed calls of an operation with a result.
fn calls(scrape: &Scrape, operation: &str, purpose: &str, result: &str) -> f64 {
    let labels = format!("operation=\"{operation}\",purpose=\"{purpose}\",result=\"{result}\"");
    scrape.value(&format!("leasehold_storage_calls_total{{{labels}}}"))
}

async fn until_scrape(served: &HttpDaemon, holds: impl Fn(&Scrape) -> bool) -> Scrape {
    until(async || Some(Scrape::of(served).await).filter(&holds)).await
}

#[tokio::test]
async fn storage_calls_and_renewals_are_counted() {
    let fixture = Fixture::new().await;
    let served = HttpDaemon::of(fixture.daemon(&HTTP));
    // The first renewal fails, the second one is throttled, the third one succeeds.
    fixture.proxy.when(Kind::Renew).times(1).then(Fault::Refuse(Refusal::INTERNAL_ERROR));
    let busy = Refusal::busy(Duration::from_secs(1));
    fixture.proxy.when(Kind::Renew).times(1).then(Fault::Refuse(busy));
    let client = served.client(LONG).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let scrape = Scrape::of(&served).await;
    assert_eq!(calls(&scrape, "create", "grant", "ok"), 1.0, "{}", scrape.text);
    assert_eq!(calls(&scrape, "acquire", "grant", "ok"), 1.0);
    assert_eq!(calls(&scrape, "acquire", "grant", "no_blob"), 1.0);
    let seconds = "leasehold_storage_call_seconds_count{operation=\"acquire\"}";
    assert_eq!(scrape.value(seconds), 2.0);
    assert_eq!(scrape.value("leasehold_lease_acquire_seconds_count"), 1.0);
    let documented: BTreeSet<_> = METRICS
        .iter()
        .filter(|metric| {
            [Presence::Always, Presence::Azure, Presence::Linux].contains(&metric.presence)
        })
        .map(|metric| metric.name)
        .collect();
    assert_eq!(scrape.types().into_keys().collect::<BTreeSet<_>>(), documented);
    let labels = ["operation", "purpose", "result"];
    assert_eq!(scrape.labels("leasehold_storage_calls_total"), labels);

    let renewed = "leasehold_renewals_total{result=\"renewed\"}";
    let scrape = until_scrape(&served, |scrape| scrape.value(renewed) == 1.0).await;
    assert_eq!(scrape.value("leasehold_renewals_total{result=\"failed\"}"), 2.0);
    assert_eq!(scrape.value("leasehold_renewal_retries_total"), 2.0);
    assert_eq!(scrape.value("leasehold_renewal_seconds_count"), 3.0);
    assert_eq!(scrape.value("leasehold_renewal_time_left_seconds_count"), 1.0);
    let left = scrape.value("leasehold_renewal_time_left_seconds_sum");
    assert!(left > 0.0 && left < 15.0, "{left}");
    assert_eq!(calls(&scrape, "renew", "renew", "ok"), 1.0);
    assert_eq!(calls(&scrape, "renew", "renew", "unknown"), 1.0);
    assert_eq!(calls(&scrape, "renew", "renew", "throttled"), 1.0);
    assert_eq!(scrape.value("leasehold_storage_throttlings_total"), 1.0);
    until_scrape(&served, |scrape| scrape.value("leasehold_storage_throttled") == 0.0).await;

    guard.release().await.unwrap();
    let released = |scrape: &Scrape| calls(scrape, "release", "release", "ok") == 1.0;
    let scrape = until_scrape(&served, released).await;
    // Last, because the first run installs the parser, which takes longer than a lease.
    parse_with_python(&scrape.text);
}

#[tokio::test]
async fn risk_and_loss_of_lease_are_counted() {
    let fixture = Fixture::new().await;
    let served = HttpDaemon::of(fixture.daemon(&HTTP));
    let client = served.client(LONG).await;
    let guard = client.lock("a").acquire().await.unwrap();
    fixture.proxy.cut();
    let at_risk = until_scrape(&served, |scrape| scrape.value("leasehold_locks_at_risk") == 1.0);
    let scrape = at_risk.await;
    assert_eq!(scrape.value("leasehold_at_risk_total"), 1.0);
    assert!(scrape.value("leasehold_renewals_total{result=\"failed\"}") >= 1.0);
    guard.lost().await;
    let lost = "leasehold_losses_total{reason=\"lease_lost\"}";
    let scrape = until_scrape(&served, |scrape| scrape.value(lost) == 1.0).await;
    assert_eq!(scrape.value("leasehold_locks_at_risk"), 0.0);
    assert_eq!(scrape.value("leasehold_store_available"), 0.0);
    fixture.proxy.heal();
    until_scrape(&served, |scrape| scrape.value("leasehold_store_available") == 1.0).await;
}

#[tokio::test]
async fn remote_handoff_is_counted_by_the_next_daemon() {
    let fixture = Fixture::new().await;
    let here = HttpDaemon::of(fixture.daemon_direct(&HTTP));
    let there = Arc::new(HttpDaemon::of(fixture.daemon_direct(&HTTP)));
    let guard = here.client(LONG).await.lock("a").acquire().await.unwrap();
    let waiter = tokio::spawn(there.client(LONG).await.lock("a").acquire());
    let polled = |scrape: &Scrape| calls(scrape, "read", "poll", "ok") >= 1.0;
    until_scrape(&there, polled).await;
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    let scrape = Scrape::of(&there).await;
    assert_eq!(scrape.value("leasehold_handoffs_total{scope=\"remote\"}"), 1.0);
    assert_eq!(scrape.value("leasehold_handoffs_total{scope=\"local\"}"), 0.0);
    next.release().await.unwrap();
}

#[tokio::test]
async fn lease_that_a_tool_broke_is_counted_as_lost() {
    let fixture = Fixture::new().await;
    let served = HttpDaemon::of(fixture.daemon(&HTTP));
    let client = served.client(LONG).await;
    let guard = client.lock("a").acquire().await.unwrap();
    fixture.blob("a").break_lease(Some(0)).await.ok();
    guard.lost().await;
    let lost = "leasehold_losses_total{reason=\"lease_lost\"}";
    let scrape = until_scrape(&served, |scrape| scrape.value(lost) == 1.0).await;
    assert_eq!(scrape.value("leasehold_renewals_total{result=\"lost\"}"), 1.0);
}

#[tokio::test]
async fn grant_on_unused_lease_is_counted_as_linger() {
    let fixture = Fixture::new().await;
    let served = HttpDaemon::of(fixture.daemon_direct(&[&HTTP[..], &["--linger", "60s"]].concat()));
    let client = served.client(LONG).await;
    for _ in 0..2 {
        client.lock("a").acquire().await.unwrap().release().await.unwrap();
    }
    let scrape = Scrape::of(&served).await;
    for source in ["lease", "linger"] {
        let grants = format!("leasehold_grants_total{{source={source:?}}}");
        assert_eq!(scrape.value(&grants), 1.0, "{source}");
    }
}

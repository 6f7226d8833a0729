//! Counts of storage calls in `leasehold get --verbose`, compared with the proxy.

use std::collections::BTreeMap;

use leasehold_test_support::{Daemon, proxy::Kind};
use serde_json::Value;

use super::{connect, queue, release};
use crate::fixture::{Fixture, wait_for};

/// Number of calls by operation and purpose.
type Counts = BTreeMap<(String, String), u64>;

/// Counters of the daemon. The command itself reads the lock's blob.
fn counters(daemon: &Daemon) -> Counts {
    let output = daemon.run(&["get", "a", "--verbose", "--output", "json"]);
    let lock: Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = lock["calls"].as_array().unwrap().iter();
    let text = |call: &Value, key: &str| call[key].as_str().unwrap().to_owned();
    calls
        .map(|call| {
            ((text(call, "operation"), text(call, "purpose")), call["count"].as_u64().unwrap())
        })
        .collect()
}

pub(crate) async fn counters_match_proxy_record() {
    let fixture = Fixture::new().await;
    let peer = fixture.daemon_direct(&[]);
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let before = counters(&daemon);
    fixture.proxy.clear();

    let taken = connect(&peer).await.lock("taken").acquire().await.unwrap();
    let waiter = queue(&client.new_session(), "taken").await;
    let first = client.lock("a").acquire().await.unwrap();
    let next = queue(&client.new_session(), "a").await;
    first.release().await.unwrap();
    let second = next.await.unwrap().unwrap();
    wait_for("a renewal", fixture.proxy.wait_for(|seen| seen.kind == Kind::Renew)).await;
    release(&fixture, second).await;
    let warm = client.lock("a").acquire().await.unwrap();
    release(&fixture, warm).await;
    taken.release().await.unwrap();
    let granted = wait_for("the grant", waiter).await.unwrap().unwrap();
    release(&fixture, granted).await;
    assert!(daemon.run(&["ls"]).status.success());

    let mut after = counters(&daemon);
    let mut recorded = BTreeMap::new();
    for call in fixture.proxy.calls() {
        *recorded.entry(format!("{:?}", call.kind).to_lowercase()).or_default() += 1;
    }
    for (key, count) in &before {
        *after.get_mut(key).unwrap() -= count;
    }
    let mut counted = BTreeMap::new();
    for ((kind, _), count) in &after {
        *counted.entry(kind.clone()).or_insert(0) += count;
    }
    counted.retain(|_, count| *count > 0);
    assert_eq!(counted, recorded);

    let count = |kind: &str, cause: &str| {
        after.get(&(kind.to_owned(), cause.to_owned())).copied().unwrap_or_default()
    };
    // "a" is new, then cached; "taken" is held at first, then cached.
    assert_eq!(count("acquire", "grant"), 2 + 1 + 1 + 1);
    assert_eq!(count("create", "grant"), 1);
    assert_eq!(count("write", "grant"), 3);
    assert_eq!(count("read", "grant"), 2);
    assert_eq!(count("release", "release"), 3);
    assert_eq!(count("renew", "renew"), recorded["renew"]);
    assert_eq!(count("read", "poll"), recorded["read"] - 2 - count("read", "inspect"));
    assert!(count("read", "poll") >= 1);
    assert_eq!(count("read", "inspect"), 1);
    assert_eq!(count("list", "inspect"), 1);
    let output = daemon.run(&["get", "a", "--verbose"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("locks/default/a"), "the blob's path: {text}");
    let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.lines().any(|line| row(line) == "write grant 3"), "{text}");
}

//! `leasehold get --verbose` shows the same counts as the proxy.

use std::collections::BTreeMap;

use leasehold_test_support::{Daemon, proxy::Kind};
use serde_json::Value;

use super::{connect, queue, release};
use crate::scene::{Scene, comes};

/// Kind and cause.
type Counts = BTreeMap<(String, String), u64>;

/// As the daemon counts, which looks at the lock's blob for that.
fn shown(daemon: &Daemon) -> Counts {
    let output = daemon.run(&["get", "a", "--verbose", "--output", "json"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = shown["calls"].as_array().unwrap().iter();
    let text = |call: &Value, key: &str| call[key].as_str().unwrap().to_owned();
    calls
        .map(|call| ((text(call, "kind"), text(call, "cause")), call["count"].as_u64().unwrap()))
        .collect()
}

pub(crate) async fn the_counters_show_what_the_proxy_saw() {
    let scene = Scene::new().await;
    let elsewhere = scene.daemon_past(&[]);
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let before = shown(&daemon);
    scene.proxy.clear();

    let taken = connect(&elsewhere).await.lock("taken").acquire().await.unwrap();
    let waiter = queue(&client.new_session(), "taken").await;
    let first = client.lock("a").acquire().await.unwrap();
    let handed_on = queue(&client.new_session(), "a").await;
    first.release().await.unwrap();
    let second = handed_on.await.unwrap().unwrap();
    comes("a renewal", scene.proxy.wait_for(|seen| seen.kind == Kind::Renew)).await;
    release(&scene, second).await;
    let warm = client.lock("a").acquire().await.unwrap();
    release(&scene, warm).await;
    taken.release().await.unwrap();
    let got = comes("the grant", waiter).await.unwrap().unwrap();
    release(&scene, got).await;
    assert!(daemon.run(&["ls"]).status.success());

    let mut after = shown(&daemon);
    let mut seen = BTreeMap::new();
    for call in scene.proxy.calls() {
        *seen.entry(format!("{:?}", call.kind).to_lowercase()).or_default() += 1;
    }
    for (key, count) in &before {
        *after.get_mut(key).unwrap() -= count;
    }
    let mut counted = BTreeMap::new();
    for ((kind, _), count) in &after {
        *counted.entry(kind.clone()).or_insert(0) += count;
    }
    counted.retain(|_, count| *count > 0);
    assert_eq!(counted, seen);

    let count = |kind: &str, cause: &str| {
        after.get(&(kind.to_owned(), cause.to_owned())).copied().unwrap_or_default()
    };
    // "a" is new, then warm; "taken" is held at first, then warm.
    assert_eq!(count("acquire", "grant"), 2 + 1 + 1 + 1);
    assert_eq!(count("create", "grant"), 1);
    assert_eq!(count("write", "grant"), 3);
    assert_eq!(count("read", "grant"), 2);
    assert_eq!(count("release", "release"), 3);
    assert_eq!(count("renew", "renew"), seen["renew"]);
    assert_eq!(count("read", "poll"), seen["read"] - 2 - count("read", "look"));
    assert!(count("read", "poll") >= 1);
    assert_eq!(count("read", "look"), 1);
    assert_eq!(count("list", "look"), 1);
    let output = daemon.run(&["get", "a", "--verbose"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("locks/default/a"), "where it is stored: {text}");
    let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.lines().any(|line| row(line) == "write grant 3"), "{text}");
}

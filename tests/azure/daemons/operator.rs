//! Commands of an operator at one daemon for locks held through a peer.

use leasehold_client::Reason;
use leasehold_test_support::{Daemon, Running, until};
use serde_json::Value;

use super::{
    cluster::{Cluster, acquire_free, client, json},
    process::is_dead,
    waiter::Waiter,
};

/// Prints its process ID and token, and "asked" on SIGTERM.
const COMMAND: &str = "trap 'echo asked; exit 0' TERM; echo $$; echo $LEASEHOLD_TOKEN; \
                       while :; do sleep 0.1; done";

/// Runs the command under a lock, with a TTL longer than the lease. Returns its
/// process ID and token.
fn hold(daemon: &Daemon, lock: &str) -> (Running, String, u64) {
    let options = ["lock", lock, "--ttl", "60s", "--label", "job=nightly"];
    let mut held = daemon.begin(&[&options[..], &["--", "sh", "-c", COMMAND]].concat());
    let (pid, token) = (held.line(), held.line().parse().unwrap());
    (held, pid, token)
}

#[track_caller]
fn assert_holder(lock: &Value) {
    assert_eq!(lock["held"], true, "{lock}");
    assert_eq!(lock["holder"]["client"], "leasehold lock: sh", "{lock}");
    assert_eq!(lock["holder"]["labels"]["job"], "nightly", "{lock}");
    assert!(lock["session_id"].is_null(), "the session belongs to the peer: {lock}");
}

/// Reads the watched states up to a matching one. Asserts that the lock is held
/// in all of them.
#[track_caller]
fn watch_until(mut next: impl FnMut() -> Value, matches: impl Fn(&Value) -> bool) {
    loop {
        let lock = next();
        assert_eq!(lock["held"], true, "{lock}");
        if matches(&lock) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn peers_lock_is_visible_and_breakable() {
    let cluster = Cluster::new("operator");
    let (a, b) = (cluster.daemon(), cluster.daemon());
    let (mut held, command, token) = hold(&a, "orders");

    assert_holder(&json(&b, &["ls"]));
    let lock = json(&b, &["get", "orders"]);
    assert_holder(&lock);
    assert!(lock["held_for_ms"].is_u64(), "{lock}");
    for (limit, reason) in [(&["--no-wait"][..], "held"), (&["--wait", "1500ms"], "timed_out")] {
        let arguments = [&["lock", "orders"], limit, &["--", "true"]].concat();
        let refused = json(&b, &arguments);
        assert_eq!(refused["error"]["reason"], reason, "{refused}");
        assert_eq!(refused["error"]["holder"]["labels"]["job"], "nightly", "{refused}");
        let refused = b.run(&arguments);
        assert_eq!(refused.status.code(), Some(75));
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(error.contains("held by \"leasehold lock: sh\""), "{error}");
    }

    // A hold has 1,024 tokens. Only its daemon knows which one is in use, so the
    // request is forwarded to it.
    let state = |daemon, token: u64| json(daemon, &["check", "orders", &token.to_string()]);
    assert_eq!(state(&a, token)["state"], "current");
    for (token, expected) in
        [(token - 1, "stale"), (token, "current"), (token + 2000, "never_granted")]
    {
        let result = state(&b, token);
        assert_eq!(result["state"], expected, "{result}");
        assert_eq!(result["lock"]["holder"]["labels"]["job"], "nightly", "{result}");
    }

    let mut watch = b.begin(&["watch", "orders", "--output", "json"]);
    let mut next = || serde_json::from_str::<Value>(&watch.line()).unwrap();
    let first = next();
    assert_eq!(first["initial"], true);
    assert_holder(&first);
    let waiter = Waiter::start(&client(&b, "waiter").await, "orders").await;
    watch_until(&mut next, |lock| lock["waiting"] == 1);

    let broken = json(&b, &["break", "orders", "--reason", "stuck"]);
    assert_eq!(broken["broken"], true, "{broken}");
    assert!(broken["free_within_ms"].as_u64().unwrap() <= 15_000, "{broken}");
    assert_holder(&broken["lock"]);
    let (granted, _) = waiter.granted().await;
    assert!(is_dead(&command), "the command ended before the next grant");
    assert!(granted.token().get() > token);
    assert_eq!(held.rest(), "asked\n");
    assert_eq!(held.code(), Some(73));
    // During the retries of the acquire, the lock was never reported as free.
    watch_until(&mut next, |lock| lock["holder"]["client"] == "waiter");
    let lock = json(&a, &["get", "orders", "--verbose"]);
    assert_eq!(lock["last_break"]["reason"], "stuck", "{lock}");
    assert_eq!(lock["holder"]["client"], "waiter", "{lock}");
    granted.release().await.unwrap();
}

/// For an address without a response, the output names the daemon to ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_unreachable_daemon_names_daemon() {
    const UNREACHABLE: &str = "http://127.0.0.1:1";
    let cluster = Cluster::new("unreachable");
    let (a, b) = (cluster.daemon_with(&["--advertise", UNREACHABLE]), cluster.daemon());
    let guard = acquire_free(&client(&a, "holder").await, "orders").await;
    let token = guard.token().to_string();
    let check = b.run(&["check", "orders", &token]);
    assert_eq!(check.status.code(), Some(2), "unknown");
    let output = String::from_utf8_lossy(&check.stdout).into_owned();
    let pid = format!("pid {}", a.process.pid());
    assert!(
        output.contains(&pid) && output.contains(&format!("--endpoint {UNREACHABLE}")),
        "{output}"
    );
    assert_eq!(json(&b, &["check", "orders", &token])["state"], "unknown");
    let explained = String::from_utf8(b.run(&["explain", "orders"]).stdout).unwrap();
    assert!(
        explained.ends_with(&format!(
            " did not respond; repeat the command with --endpoint {UNREACHABLE}\n"
        )),
        "{explained}"
    );
    assert!(json(&b, &["explain", "orders"])["peer"].is_null());
    assert_eq!(b.run(&["check", "orders", "1"]).status.code(), Some(1), "stale");
    assert_eq!(a.run(&["check", "orders", &token]).status.code(), Some(0), "current");

    let leading = client(&a, "leader").await.election("jobs").campaign("v").await.unwrap();
    let step_down = b.run(&["step-down", "jobs", "--reason", "drill"]);
    assert_eq!(step_down.status.code(), Some(1));
    let output = String::from_utf8_lossy(&step_down.stdout).into_owned();
    let endpoint = format!("--endpoint {UNREACHABLE}");
    assert!(output.contains(&pid) && output.contains(&endpoint), "{output}");
    leading.resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_peer_is_explained_at_both_daemons() {
    let cluster = Cluster::new("explained");
    let (a, b) = (cluster.daemon(), cluster.daemon());
    let guard = acquire_free(&client(&a, "holder").await, "orders").await;
    let _waiter = Waiter::start(&client(&b, "waiter").await, "orders").await;
    // The holder's daemon has renewed the lease.
    let explanation = until(async || {
        let explanation = json(&b, &["explain", "orders"]);
        (explanation["peer"]["lease"]["renewals"].get(0).is_some()).then_some(explanation)
    })
    .await;
    assert_eq!(explanation["diagnosis"], "held_by_peer", "{explanation}");
    assert_eq!(explanation["waiters"][0]["holder"]["client"], "waiter", "{explanation}");
    assert!(explanation["grant"].is_null(), "{explanation}");
    let peer = &explanation["peer"];
    assert_eq!((&peer["diagnosis"], &peer["holder"]["client"]), (&"held".into(), &"holder".into()));
    assert_eq!(peer["token"], guard.token().get(), "{peer}");
    assert_eq!(peer["events"][0]["kind"], "granted", "{peer}");
    let renewal = &peer["lease"]["renewals"][0];
    assert_eq!(renewal["renewed"], true, "{renewal}");
    assert!(
        renewal["took_ms"].is_u64() && renewal["left_ms"].as_u64() <= Some(15_000),
        "{renewal}"
    );
    assert!(json(&a, &["explain", "orders"])["peer"].is_null());

    let text = String::from_utf8(b.run(&["explain", "orders"]).stdout).unwrap();
    let (here, there) = text.split_once("\nat daemon ").unwrap_or_else(|| panic!("{text}"));
    assert!(here.contains("\nwaiters\n") && !here.contains("\nrenewals\n"), "{text}");
    assert!(there.contains(&format!("pid {}", a.process.pid())), "{text}");
    assert!(there.contains("\nrenewals\n") && there.contains("\nevents\n"), "{text}");
    let calls = json(&a, &["top", "--interval", "100ms"])["calls"].clone();
    assert!(calls.as_array().unwrap().iter().any(|calls| calls["operation"] == "renew"), "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_is_notified_of_break_through_peer() {
    let cluster = Cluster::new("broken");
    let (a, b) = (cluster.daemon(), cluster.daemon());
    let holder = client(&a, "holder").await;
    let guard = acquire_free(&holder, "orders").await;
    let operator = client(&b, "operator").await;
    assert!(operator.break_lock("orders").by("ops@desk").reason("stuck").await.unwrap().broken);
    // The listing has one lock, without the break note.
    assert_eq!(json(&b, &["ls"])["name"], "orders");
    let loss = guard.lost().await;
    assert_eq!(loss.reason, Reason::Broken);
    let operator = loss.operator.expect("an operator");
    assert_eq!((operator.by.as_str(), operator.reason.as_str()), ("ops@desk", "stuck"));
    assert!(loss.message.contains("stuck"), "{}", loss.message);
    assert!(!guard.deadline().has_passed(), "there is time to stop");
    assert_eq!(json(&b, &["break", "unused", "--reason", "stuck"])["broken"], false);
}

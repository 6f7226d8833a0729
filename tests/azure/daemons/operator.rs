//! What an operator sees and does through one daemon of what another holds.

use leasehold_client::Reason;
use leasehold_test_support::{Daemon, Running};
use serde_json::Value;

use super::{
    place::{Place, client, json, take},
    process::is_dead,
    waiter::Waiter,
};

/// Says its process and its token, and that it was asked to end.
const COMMAND: &str = "trap 'echo asked; exit 0' TERM; echo $$; echo $LEASEHOLD_TOKEN; \
                       while :; do sleep 0.1; done";

/// Runs the command under a lock, with a ttl beyond the lease; gives its
/// process and its token.
fn hold(daemon: &Daemon, lock: &str) -> (Running, String, u64) {
    let options = ["lock", lock, "--ttl", "60s", "--label", "job=nightly"];
    let mut held = daemon.begin(&[&options[..], &["--", "sh", "-c", COMMAND]].concat());
    let (pid, token) = (held.line(), held.line().parse().unwrap());
    (held, pid, token)
}

#[track_caller]
fn shows_the_holder(lock: &Value) {
    assert_eq!(lock["held"], true, "{lock}");
    assert_eq!(lock["holder"]["client"], "leasehold lock: sh", "{lock}");
    assert_eq!(lock["holder"]["labels"]["job"], "nightly", "{lock}");
    assert!(lock["session_id"].is_null(), "it is a session of the other daemon: {lock}");
}

/// Reads what is watched, which is held all the time.
#[track_caller]
fn watched_until(mut watched: impl FnMut() -> Value, is_meant: impl Fn(&Value) -> bool) {
    loop {
        let lock = watched();
        assert_eq!(lock["held"], true, "{lock}");
        if is_meant(&lock) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "looks into /proc")]
async fn what_is_held_through_another_daemon_is_shown_and_can_be_broken() {
    let place = Place::new("operator");
    let (a, b) = (place.daemon(), place.daemon());
    let (mut held, command, token) = hold(&a, "orders");

    shows_the_holder(&json(&b, &["ls"]));
    let shown = json(&b, &["get", "orders"]);
    shows_the_holder(&shown);
    assert!(shown["held_for_ms"].is_u64(), "{shown}");
    for (limit, reason) in [(&["--no-wait"][..], "held"), (&["--wait", "1500ms"], "timed_out")] {
        let arguments = [&["lock", "orders"], limit, &["--", "true"]].concat();
        let refused = json(&b, &arguments);
        assert_eq!(refused["error"]["reason"], reason, "{refused}");
        assert_eq!(refused["error"]["holder"]["labels"]["job"], "nightly", "{refused}");
        let refused = b.run(&arguments);
        assert_eq!(refused.status.code(), Some(75));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("held by \"leasehold lock: sh\""), "{said}");
    }

    // A hold has 1,024 tokens; which of them is in use, only its daemon knows,
    // and is asked.
    let state = |daemon, token: u64| json(daemon, &["check", "orders", &token.to_string()]);
    assert_eq!(state(&a, token)["state"], "current");
    for (token, expected) in
        [(token - 1, "stale"), (token, "current"), (token + 2000, "never_granted")]
    {
        let answer = state(&b, token);
        assert_eq!(answer["state"], expected, "{answer}");
        assert_eq!(answer["lock"]["holder"]["labels"]["job"], "nightly", "{answer}");
    }

    let mut watch = b.begin(&["watch", "orders", "--output", "json"]);
    let mut watched = || serde_json::from_str::<Value>(&watch.line()).unwrap();
    let first = watched();
    assert_eq!(first["initial"], true);
    shows_the_holder(&first);
    let waiter = Waiter::begin(&client(&b, "waiter").await, "orders").await;
    watched_until(&mut watched, |lock| lock["waiting"] == 1);

    let broken = json(&b, &["break", "orders", "--reason", "stuck"]);
    assert_eq!(broken["broken"], true, "{broken}");
    assert!(broken["free_within_ms"].as_u64().unwrap() <= 15_000, "{broken}");
    shows_the_holder(&broken["lock"]);
    let (taken, _) = waiter.granted().await;
    assert!(is_dead(&command), "it was asked to end, or killed, before another was granted");
    assert!(taken.token().get() > token);
    assert_eq!(held.rest(), "asked\n");
    assert_eq!(held.code(), Some(73));
    // It was asked for again and again meanwhile, and never seemed to be free.
    watched_until(&mut watched, |lock| lock["holder"]["client"] == "waiter");
    let noted = json(&a, &["get", "orders", "--verbose"]);
    assert_eq!(noted["last_break"]["reason"], "stuck", "{noted}");
    assert_eq!(noted["holder"]["client"], "waiter", "{noted}");
    taken.release().await.unwrap();
}

/// An address that does not answer: the operator is told which daemon to ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_unreachable_daemon_names_the_daemon() {
    const NOWHERE: &str = "http://127.0.0.1:1";
    let place = Place::new("unreachable");
    let (a, b) = (place.daemon_with(&["--advertise", NOWHERE]), place.daemon());
    let guard = take(&client(&a, "holder").await, "orders").await;
    let token = guard.token().to_string();
    let check = b.run(&["check", "orders", &token]);
    assert_eq!(check.status.code(), Some(2), "unknown");
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    let pid = format!("pid {}", a.process.pid());
    assert!(said.contains(&pid) && said.contains(&format!("--endpoint {NOWHERE}")), "{said}");
    assert_eq!(json(&b, &["check", "orders", &token])["state"], "unknown");
    assert_eq!(b.run(&["check", "orders", "1"]).status.code(), Some(1), "stale");
    assert_eq!(a.run(&["check", "orders", &token]).status.code(), Some(0), "current");

    let leading = client(&a, "leader").await.election("jobs").campaign("v").await.unwrap();
    let asked = b.run(&["step-down", "jobs", "--reason", "drill"]);
    assert_eq!(asked.status.code(), Some(1));
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(said.contains(&pid) && said.contains(&format!("--endpoint {NOWHERE}")), "{said}");
    leading.resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_that_its_lock_was_broken_through_another_daemon() {
    let place = Place::new("broken");
    let (a, b) = (place.daemon(), place.daemon());
    let holder = client(&a, "holder").await;
    let guard = take(&holder, "orders").await;
    let operator = client(&b, "operator").await;
    assert!(operator.break_lock("orders").by("ops@desk").reason("stuck").await.unwrap().broken);
    // One lock: the break note is not listed.
    assert_eq!(json(&b, &["ls"])["name"], "orders");
    let loss = guard.lost().await;
    assert_eq!(loss.reason, Reason::Broken);
    let operator = loss.operator.expect("the operator is known");
    assert_eq!((operator.by.as_str(), operator.reason.as_str()), ("ops@desk", "stuck"));
    assert!(loss.message.contains("stuck"), "{}", loss.message);
    assert!(!guard.deadline().has_passed(), "there is time to stop");
    assert_eq!(json(&b, &["break", "unused", "--reason", "stuck"])["broken"], false);
}

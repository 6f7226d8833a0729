//! `explain` against a real daemon: holder, waiters, events and their reasons.

use std::process::Output;

use leasehold_test_support::{Daemon, Running, program, until};
use serde_json::Value;

fn explain(daemon: &Daemon, name: &str) -> Value {
    let output = daemon.run(&["explain", name, "--output", "json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Holds a lock until the process is stopped.
fn hold(daemon: &Daemon, name: &str) -> Running {
    let mut held = daemon.begin(&["lock", name, "--", "sh", "-c", "echo ready; sleep 1000"]);
    assert_eq!(held.line(), "ready");
    held
}

/// Starts waiters, each after the previous one is in the queue.
async fn queue(daemon: &Daemon, name: &str, count: usize) -> Vec<Running> {
    let mut waiters = Vec::new();
    while waiters.len() < count {
        let script = "echo ready; sleep 1000";
        waiters.push(daemon.begin(&["lock", name, "--wait", "1h", "--", "sh", "-c", script]));
        until(async || (explain(daemon, name)["waiting"] == waiters.len()).then_some(())).await;
    }
    waiters
}

fn kinds(explanation: &Value) -> Vec<String> {
    let events = explanation["events"].as_array().unwrap().iter();
    events.map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

fn keys(object: &Value) -> Vec<&String> {
    object.as_object().unwrap().keys().collect()
}

#[tokio::test]
async fn explanation_has_holder_waiters_and_command() {
    let daemon = Daemon::start();
    let holder = hold(&daemon, "x");
    let waiters = queue(&daemon, "x", 2).await;
    let explanation = explain(&daemon, "x");
    assert_eq!(explanation["holder"]["pid"], holder.pid());
    assert_eq!(explanation["diagnosis"], "waiting_for_holder");
    assert_eq!(
        (&explanation["grant"]["connected"], &explanation["lease"]["state"]),
        (&true.into(), &"held".into())
    );
    assert!(explanation["grant"]["time_left_ms"].as_u64() > Some(0), "{explanation}");
    let listed = explanation["waiters"].as_array().unwrap();
    let pids: Vec<_> = listed.iter().map(|waiter| waiter["holder"]["pid"].as_u64()).collect();
    assert_eq!(pids, [waiters[0].pid(), waiters[1].pid()].map(|pid| Some(u64::from(pid))));
    assert!(listed[0]["waiting_for_ms"].as_u64() >= listed[1]["waiting_for_ms"].as_u64());
    assert!(listed[0]["times_out_in_ms"].as_u64() <= Some(3_600_000), "{explanation}");
    assert_eq!(kinds(&explanation), ["granted", "queued", "queued"]);
    assert_eq!(explanation["events"][0]["token"], explanation["token"]);
    assert!(explanation["events"][0]["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(explanation["peer"], Value::Null);

    let plain = text(daemon.run(&["explain", "x"]));
    let token = &explanation["token"];
    assert!(
        plain.starts_with("name       x\n") && plain.contains(&format!("token      {token}\n"))
    );
    assert!(plain.contains("\nreason     the waiters wait for the holder"), "{plain}");
    assert!(plain.contains("leasehold break x --reason REASON\n"), "{plain}");
    let places = [1, 2].map(|place| plain.find(&format!("\n  {place}  since ")).unwrap());
    assert!(places[0] < places[1] && plain.contains("\nevents\n"), "{plain}");
    // A command for a daemon other than the default one names it.
    let mut command = program();
    let output = command.args(["explain", "x", "-e", &daemon.endpoint]).output().unwrap();
    let named = format!("leasehold break --endpoint {} x --reason REASON\n", daemon.endpoint);
    assert!(text(output).contains(&named));
}

#[tokio::test]
async fn break_and_handoff_are_events_with_their_reason() {
    let daemon = Daemon::start();
    let mut holder = hold(&daemon, "x");
    let before = explain(&daemon, "x");
    let mut waiters = queue(&daemon, "x", 1).await;
    daemon.run(&["break", "x", "--reason", "incident 4711"]);
    assert_eq!(holder.code(), Some(73));
    assert_eq!(waiters[0].line(), "ready");
    let explanation = explain(&daemon, "x");
    assert_eq!(kinds(&explanation), ["granted", "queued", "lost", "granted"]);
    let [.., lost, granted] = &explanation["events"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&lost["cause"], &lost["token"]), (&"broken".into(), &before["token"]));
    assert!(lost["detail"].as_str().unwrap().contains("incident 4711"), "{lost}");
    assert!(lost["held_for_ms"].is_u64() && granted["waited_ms"].is_u64(), "{explanation}");
    assert_eq!(granted["cause"], "handoff");
    assert_eq!(granted["holder"]["pid"], waiters[0].pid());
    assert_eq!(explanation["holder"]["pid"], waiters[0].pid());
    assert_eq!(explanation["diagnosis"], "held");

    let last = daemon.run(&["explain", "x", "--events", "1"]);
    let last = text(last);
    let (_, events) = last.split_once("\nevents\n").unwrap();
    assert!(events.lines().count() == 1 && events.contains("was granted the lock"), "{last}");
}

#[tokio::test]
async fn killed_holder_is_explained_until_it_expires() {
    let daemon = Daemon::start();
    let mut command = daemon.command(&["lock", "x", "--ttl", "60s"]);
    let mut holder = Running::start(&mut command);
    holder.line();
    holder.child.kill().unwrap();
    holder.end();
    let silent = async || {
        let explanation = explain(&daemon, "x");
        (explanation["grant"]["connected"] == false).then_some(explanation)
    };
    let _waiters = queue(&daemon, "x", 1).await;
    let explanation = until(silent).await;
    assert_eq!(explanation["diagnosis"], "holder_silent");
    assert!(explanation["summary"].as_str().unwrap().contains("expires in"), "{explanation}");
}

#[test]
fn unused_lock_has_same_keys_as_held_lock() {
    let daemon = Daemon::start();
    let _holder = hold(&daemon, "x");
    let (held, unused) = (explain(&daemon, "x"), explain(&daemon, "y"));
    assert_eq!(keys(&held), keys(&unused));
    assert_eq!(keys(&held["lease"]), keys(&unused["lease"]));
    assert_eq!((&unused["diagnosis"], &unused["held"]), (&"free".into(), &false.into()));
    assert!(kinds(&unused).is_empty());
    let plain = text(daemon.run(&["explain", "y"]));
    assert!(plain.ends_with("reason     the lock is free\n"), "{plain}");
    let elsewhere = daemon.run(&["explain", "x", "-n", "shop"]);
    assert!(text(elsewhere).contains("namespace  shop\nstate      free\n"));
}

#[test]
fn explain_reports_unreachable_daemon_and_invalid_name() {
    for command in [&["explain", "x"][..], &["top"]] {
        let output = program().args(command).args(["-e", "http://127.0.0.1:1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(69));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.contains("connection refused; start it with \"leasehold serve\""),
            "{stderr}"
        );
    }
    let daemon = Daemon::start();
    assert_eq!(daemon.run(&["explain", "a\tb"]).status.code(), Some(65));
    assert_eq!(daemon.run(&["explain", "x", "--events", "0"]).status.code(), Some(64));
}

//! The demo: its faults and their effects, and that nothing is left behind.

use std::{
    fs,
    net::TcpListener,
    process::{Command, Stdio},
};

use leasehold_test_support::{Running, program, until};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

/// `leasehold demo` with a directory of its own for temporary files.
fn demo(temporary: &TempDir, arguments: &[&str]) -> Command {
    let mut command = program();
    command.arg("demo").args(arguments).env("TMPDIR", temporary.path());
    command
}

fn is_empty(directory: &TempDir) -> bool {
    fs::read_dir(directory.path()).unwrap().next().is_none()
}

/// Returns whether a process has ended. A zombie waits only for its parent.
fn has_ended(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_none_or(|state| "ZX".contains(state))
}

/// Process IDs of the daemon and the workers.
fn pids(events: &[Value]) -> Vec<u64> {
    let started =
        events.iter().filter(|event| event["event"] == "started" || event["event"] == "joined");
    started.map(|event| event["pid"].as_u64().unwrap()).collect()
}

/// Reads events up to the first of a kind.
fn events_until(demo: &mut Running, kind: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    while events.last().is_none_or(|event| event["event"] != kind) {
        events.push(serde_json::from_str(&demo.line()).unwrap());
    }
    events
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

#[test]
fn demo_shows_each_fault_and_leaves_nothing() {
    let temporary = TempDir::new().unwrap();
    let arguments = ["--rounds", "3", "--interval", "100ms", "--output", "json"];
    let output = demo(&temporary, &arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

    assert_eq!(events[0]["event"], "started");
    let faults = of_kind(&events, "fault");
    let kinds: Vec<_> = faults.iter().map(|fault| fault["fault"].as_str().unwrap()).collect();
    assert_eq!(kinds.len(), 3, "{lines}");
    assert!(kinds.contains(&"pause") && kinds.contains(&"break"), "{lines}");
    assert!(kinds.iter().any(|kind| kind.starts_with("kill_")), "{lines}");

    let tokens: Vec<_> =
        of_kind(&events, "granted").iter().map(|one| one["token"].as_u64()).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{lines}");
    let paused = faults.iter().find(|fault| fault["fault"] == "pause").unwrap();
    // On a busy machine, a worker may also be too slow without a fault.
    let refusals = of_kind(&events, "refused");
    let refused = refusals.iter().find(|refused| refused["token"] == paused["token"]).unwrap();
    assert_eq!(refused["worker"], paused["worker"], "{lines}");
    assert!(refused["token"].as_u64() < refused["highest_token"].as_u64(), "{lines}");
    let broken = of_kind(&events, "lost")
        .into_iter()
        .any(|lost| lost["message"].as_str().unwrap().contains("was broken by "));
    assert!(broken, "{lines}");
    let again = of_kind(&events, "joined").into_iter().filter(|joined| joined["again"] == true);
    assert_eq!(again.count(), 1, "{lines}");
    let ended = events.last().unwrap();
    assert_eq!(
        (&ended["event"], &ended["refused_writes"]),
        (&"ended".into(), &refusals.len().into())
    );

    assert!(is_empty(&temporary));
    assert!(pids(&events).into_iter().all(has_ended), "{lines}");
}

#[test]
fn interrupted_demo_prints_totals_and_leaves_nothing() {
    let temporary = TempDir::new().unwrap();
    let mut running = Running::start(&mut demo(&temporary, &["--seed", "1"]));
    let first = running.line();
    assert!(first.starts_with("leasehold demo: three workers compete for lock \"orders\""));
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains(" holds lock \"orders\" with ")) {
        lines.push(running.line());
    }
    let address = |line: &&String| line.contains("http://127.0.0.1:");
    assert!(lines.iter().filter(address).count() >= 2, "{lines:?}");
    running.signal(Signal::SIGTERM);
    let rest = running.rest();
    assert_eq!(running.code(), Some(0));
    assert!(rest.lines().last().unwrap().contains(" end       "), "{rest}");
    assert!(is_empty(&temporary));
}

#[tokio::test]
async fn killed_demo_leaves_nothing() {
    let temporary = TempDir::new().unwrap();
    let mut running = Running::start(&mut demo(&temporary, &["--output", "json"]));
    let events = events_until(&mut running, "granted");
    let pids = pids(&events);
    assert_eq!(pids.len(), 4);
    // A stopped worker does not notice the end of its input.
    kill(Pid::from_raw(pids[3] as i32), Signal::SIGSTOP).unwrap();
    running.child.kill().unwrap();
    running.end();
    until(async || pids.iter().all(|pid| has_ended(*pid)).then_some(())).await;
    until(async || is_empty(&temporary).then_some(())).await;
}

#[test]
fn demo_ends_if_its_reader_does_or_time_is_over() {
    let temporary = TempDir::new().unwrap();
    let mut running = Running::start(&mut demo(&temporary, &["--duration", "2s", "-o", "json"]));
    let rest = running.rest();
    assert_eq!(running.code(), Some(0));
    assert!(rest.lines().last().unwrap().contains("\"event\":\"ended\""), "{rest}");

    let mut command = demo(&temporary, &["--output", "json"]);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(running.stdout.take());
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert!(is_empty(&temporary));
}

#[test]
fn demo_without_daemon_reports_why() {
    let temporary = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, code, message) in [
        (taken.as_str(), 1, "address already in use"),
        ("0.0.0.0:0", 78, "allow_remote"),
        ("nonsense", 78, "listen"),
    ] {
        let output = demo(&temporary, &["--listen", address]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(message) && output.stdout.is_empty(), "{stderr}");
        assert_eq!(stderr.matches("leasehold:").count(), 1, "{stderr}");
    }
    assert!(is_empty(&temporary));
}

#[test]
fn demo_ignores_settings_of_environment() {
    let temporary = TempDir::new().unwrap();
    let mut command = demo(&temporary, &["--duration", "500ms", "--output", "json"]);
    let output = command.env("LEASEHOLD_STORE", "azure").env("LEASEHOLD_LISTEN", "no").output();
    assert!(output.unwrap().status.success());
}

//! The command line against a real daemon: commands under its locks, listings and messages.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{ChildStderr, Command, Output, Stdio},
    time::{Duration, UNIX_EPOCH},
};

use leasehold_test_support::{
    Daemon, Running, is_ignored, leasehold as leasehold_path, program, serve, until,
};
use leasehold_time::{Moment, clock};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    pty::openpty,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

/// Runs a script under a lock and waits until the script prints "ready".
fn hold(daemon: &Daemon, options: &[&str], script: &str) -> Running {
    let mut arguments = vec!["lock"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    let mut held = daemon.begin(&arguments);
    assert_eq!(held.line(), "ready");
    held
}

fn json(daemon: &Daemon, arguments: &[&str]) -> Value {
    let output = daemon.run(&[arguments, &["--output", "json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn leasehold(arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(arguments);
    command
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn error(output: &Output) -> Value {
    let line = stderr(output);
    serde_json::from_str::<Value>(line.trim()).unwrap_or_else(|_| panic!("{line}"))["error"].clone()
}

/// Children of a process with this word on their command line.
fn children(parent: u32, word: &str) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    let has_word = |child: &&str| {
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    let matching = children.split_whitespace().filter(has_word);
    matching.map(|child| Pid::from_raw(child.parse().unwrap())).collect()
}

fn is_stopped(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().any(|line| line.starts_with("State:\tT"))
}

/// Full pipe: a write to it blocks, because the reader does not read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'x'; 512]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

/// Unblocks the process that is opening this pipe for reading.
fn open_gate(fifo: &Path) {
    drop(File::options().write(true).open(fifo).unwrap());
}

/// Script that prints "ready" and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo ready; while :; do sleep 0.1; done";

#[test]
fn command_gets_lock_variables_and_sets_exit_code() {
    let daemon = Daemon::start();
    let script =
        "echo $LEASEHOLD_LOCK in $LEASEHOLD_NAMESPACE; test $LEASEHOLD_TOKEN -gt 0; exit 7";
    let output = daemon.run(&["--namespace", "shop", "lock", "orders", "--", "sh", "-c", script]);
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), "orders in shop\n");
    assert_eq!(code(&output), 7);
    assert_eq!(code(&daemon.run(&["lock", "a", "--", "sh", "-c", "kill -USR1 $$"])), 128 + 10);
    assert_eq!(json(&daemon, &["get", "orders", "--namespace", "shop"])["held"], false);
}

#[test]
fn command_that_cannot_start_exits_as_in_shells_and_releases() {
    let daemon = Daemon::start();
    assert_eq!(code(&daemon.run(&["lock", "a", "--", "no-such-command"])), 127);
    let output = daemon.run(&["lock", "a", "--no-wait", "--", "/"]);
    assert_eq!(code(&output), 126);
    assert!(stderr(&output).contains("can't run /"), "{}", stderr(&output));
    assert_eq!(json(&daemon, &["get", "a"])["held"], false);
}

#[test]
fn concurrent_commands_run_in_turn_with_increasing_tokens() {
    let daemon = Daemon::start();
    let script = "echo $LEASEHOLD_TOKEN; read line";
    let mut command = daemon.command(&["lock", "same", "--", "sh", "-c", script]);
    let mut first = Running::start(command.stdin(Stdio::piped()));
    let low: u64 = first.line().parse().unwrap();
    let mut second = daemon.begin(&["lock", "same", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]);
    assert_eq!(json(&daemon, &["check", "same", &low.to_string()])["state"], "current");
    drop(first.child.stdin.take());
    let high: u64 = second.line().parse().unwrap();
    assert!(high > low, "{high} after {low}");
    // `read` fails at the end of its input.
    assert_eq!(first.code(), Some(1));
    assert_eq!(second.code(), Some(0));
}

#[test]
fn refused_or_timed_out_acquire_names_holder() {
    let daemon = Daemon::start();
    let _holder = hold(&daemon, &["x", "--label", "job=nightly"], "echo ready; sleep 100");
    for wait in [&["--no-wait"][..], &["--wait", "100ms"]] {
        let output = daemon.run(&[&["lock", "x"], wait, &["--", "true"]].concat());
        assert_eq!(code(&output), 75);
        assert!(stderr(&output).contains("leasehold lock: sh"), "{}", stderr(&output));
    }
    let output = daemon.run(&["--output", "json", "lock", "x", "--no-wait", "--", "true"]);
    let error = error(&output);
    assert_eq!(error["kind"], "not_granted");
    assert_eq!(error["reason"], "held");
    assert_eq!(error["lock"], "x");
    assert_eq!(error["holder"]["labels"]["job"], "nightly");
}

#[test]
fn signals_are_forwarded_to_command() {
    let daemon = Daemon::start();
    let script = "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; \
                  while :; do sleep 0.05; done";
    let mut held = hold(&daemon, &["x"], script);
    held.signal(Signal::SIGUSR1);
    assert_eq!(held.line(), "usr1");
    held.signal(Signal::SIGTERM);
    assert_eq!(held.line(), "term");
    assert_eq!(held.code(), Some(5));
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn stopped_command_ends_on_forwarded_signal() {
    let daemon = Daemon::start();
    let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
    for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        let script = "echo $$; kill -STOP $$; sleep 1000";
        let mut held = daemon.begin(&["lock", "x", "--", "sh", "-c", script]);
        let command = held.line();
        until(async || is_stopped(&command).then_some(())).await;
        held.signal(signal);
        assert_eq!(held.code(), Some(128 + signal as i32));
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs setsid")]
fn command_waiting_for_missing_terminal_does_not_keep_lock() {
    let daemon = Daemon::start();
    let script = "echo ready; kill -TTIN $$; sleep 1000";
    let mut command = Command::new("setsid");
    command.arg(leasehold_path());
    command.args(["lock", "x", "--ttl", "1s", "--endpoint", &daemon.endpoint]);
    let mut held = Running::start(command.args(["--", "sh", "-c", script]).stdin(Stdio::null()));
    assert_eq!(held.line(), "ready");
    let next = daemon.run(&["lock", "x", "--wait", "30s", "--", "true"]);
    assert_eq!((code(&next), stderr(&next)), (0, String::new()));
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs setsid")]
fn command_gets_terminal_on_request() {
    let daemon = Daemon::start();
    let terminal = openpty(None, None).unwrap();
    // The terminal is only the controlling terminal, not standard input or output.
    let script = "exec \"$0\" lock x -- sh -c 'read line </dev/tty; echo got $line' </dev/null";
    let mut command = Command::new("setsid");
    command.args(["--ctty", "sh", "-c", script]).arg(leasehold_path());
    command.env("LEASEHOLD_ENDPOINT", &daemon.endpoint).stdin(terminal.slave);
    let mut held = Running::start(&mut command);
    drop(command);
    File::from(terminal.master.try_clone().unwrap()).write_all(b"this\n").unwrap();
    assert_eq!(held.line(), "got this");
    assert_eq!(held.code(), Some(0));
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn command_does_not_run_without_watchdog() {
    let daemon = Daemon::start();
    // Each process of the program blocks on this pipe while its libraries are loaded.
    let gate = daemon.dir.path().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut command = daemon.command(&["lock", "x", "--", "echo", "ran"]);
    let mut held = Running::start(command.env("LD_PRELOAD", &gate).stderr(Stdio::piped()));
    open_gate(&gate);
    let pid = held.pid();
    let watchdog = until(async || children(pid, "watchdog").pop()).await;
    until(async || children(pid, "launch").pop()).await;
    kill(watchdog, Signal::SIGKILL).unwrap();
    until(async || children(pid, "watchdog").is_empty().then_some(())).await;
    open_gate(&gate);
    assert_eq!(held.rest(), "");
    let mut messages = String::new();
    held.child.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
    assert!(messages.contains("can't reach the watchdog"), "{messages}");
    assert_eq!(held.code(), Some(1));
    assert_eq!(json(&daemon, &["get", "x"])["held"], false);
}

#[test]
fn signal_ends_wait() {
    let daemon = Daemon::start();
    let _holder = hold(&daemon, &["x"], "echo ready; sleep 100");
    let mut watch = daemon.begin(&["watch", "x", "--output", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&watch.line()).unwrap()["initial"], true);
    let mut waiter = daemon.begin(&["lock", "x", "--", "true"]);
    // Wait until the acquire is queued.
    while serde_json::from_str::<Value>(&watch.line()).unwrap()["waiting"] != 1 {}
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.code(), Some(128 + 15));
    while serde_json::from_str::<Value>(&watch.line()).unwrap()["waiting"] != 0 {}
}

#[test]
fn broken_lock_ends_whole_process_group() {
    let daemon = Daemon::start();
    // The background process ignores SIGTERM and keeps the pipe open.
    let script = "(trap '' TERM; sleep 1000) & trap 'echo asked; exit 0' TERM; echo ready; wait";
    let mut held = hold(&daemon, &["x", "--ttl", "30s"], script);
    let output = daemon.run(&["break", "x", "--reason", "stuck"]);
    assert_eq!(code(&output), 0);
    assert_eq!(held.rest(), "asked\n");
    assert_eq!(held.code(), Some(73));
    assert_eq!(json(&daemon, &["get", "x"])["held"], false);
    assert_eq!(json(&daemon, &["break", "x", "--reason", "again"])["broken"], false);
}

#[test]
fn max_hold_time_ends_command() {
    let daemon = Daemon::start();
    let arguments = ["lock", "x", "--max-hold-time", "1s", "--output", "json"];
    let output = daemon.run(&[&arguments[..], &["--", "sleep", "1000"]].concat());
    assert_eq!(code(&output), 73);
    let error = error(&output);
    assert_eq!((&error["kind"], &error["reason"]), (&"lost".into(), &"max_hold_time".into()));
}

#[test]
fn watchdog_kills_command_while_cli_is_stopped() {
    let daemon = Daemon::start();
    // Only the command has the fifo open. The output of a stopped process stays open.
    let fifo = daemon.dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = format!("exec >{}; {STUBBORN}", fifo.display());
    let arguments = ["lock", "x", "--ttl", "1s", "--", "sh", "-c", &script];
    let mut command = daemon.command(&arguments);
    let mut held = Running::start(command.stderr(Stdio::piped()));
    let mut output = BufReader::new(File::open(&fifo).unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    held.signal(Signal::SIGSTOP);
    // The read ends when the watchdog has killed the command.
    output.read_to_string(&mut line).unwrap();
    let next = daemon.run(&["lock", "x", "--wait", "30s", "--", "true"]);
    assert_eq!(code(&next), 0);
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
    let mut messages = String::new();
    held.child.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
    let note = "leasehold: lock \"x\" was not kept alive in time; killed the command\n";
    assert!(messages.starts_with(note), "{messages}");
}

#[test]
fn watchdog_ends_command_after_cli_is_killed() {
    let daemon = Daemon::start();
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done";
    let mut held = hold(&daemon, &["x", "--ttl", "3s"], script);
    held.signal(Signal::SIGKILL);
    assert_eq!(held.rest(), "asked\n");
    let next = daemon.run(&["lock", "x", "--wait", "30s", "--", "true"]);
    assert_eq!(code(&next), 0);
}

#[test]
fn daemon_crash_ends_command() {
    let daemon = Daemon::start();
    let mut held = hold(&daemon, &["x", "--ttl", "1s"], STUBBORN);
    daemon.process.signal(Signal::SIGKILL);
    held.rest();
    assert_eq!(held.code(), Some(73));
    assert_eq!(code(&daemon.run(&["ls"])), 69);
}

#[test]
fn background_process_outlives_command() {
    let daemon = Daemon::start();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let output = daemon.run(&["lock", "x", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 0);
    let background: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(kill(Pid::from_raw(background), Signal::SIGKILL), Ok(()));
}

#[test]
fn locks_are_listed_as_text_and_json() {
    let daemon = Daemon::start();
    let _a = hold(&daemon, &["jobs/a"], "echo ready; sleep 100");
    let _b = hold(&daemon, &["other"], "echo ready; sleep 100");
    let text = String::from_utf8(daemon.run(&["ls"]).stdout).unwrap();
    assert!(text.starts_with("NAME "), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    let jobs = json(&daemon, &["ls", "jobs/"]);
    assert_eq!(jobs["name"], "jobs/a");
    assert_eq!(jobs["namespace"], "default");
    assert!(jobs["token"].is_u64() && jobs["held_for_ms"].is_u64(), "{jobs}");
    let token = jobs["token"].to_string();
    assert_eq!(code(&daemon.run(&["check", "jobs/a", &token])), 0);
    assert_eq!(code(&daemon.run(&["check", "jobs/a", "1"])), 1);
    assert_eq!(code(&daemon.run(&["check", "unused", "1"])), 1);
}

#[test]
fn closed_stdout_does_not_fail_listing() {
    let daemon = Daemon::start();
    let _held = hold(&daemon, &["x"], "echo ready; sleep 100");
    let mut list = daemon.command(&["ls"]);
    let mut list = list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(list.stdout.take());
    let output = list.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
}

#[test]
fn check_exit_code_does_not_depend_on_reader() {
    let daemon = Daemon::start();
    let _held = hold(&daemon, &["x"], "echo ready; sleep 100");
    let token = json(&daemon, &["get", "x"])["token"].to_string();
    for (token, expected) in [(token.as_str(), 0), ("1", 1)] {
        for output in ["text", "json"] {
            let (reader, writer) = io::pipe().unwrap();
            drop(reader);
            let mut check = daemon.command(&["check", "x", token, "--output", output]);
            let output = check.stdout(writer).stderr(Stdio::piped()).output().unwrap();
            assert_eq!((code(&output), stderr(&output)), (expected, String::new()));
        }
    }
}

#[test]
fn invalid_input_is_refused_with_field() {
    let daemon = Daemon::start();
    let long = "x".repeat(257);
    for arguments in [
        &["get", ""][..],
        &["get", &long],
        &["get", "a\tb"],
        &["ls", "--namespace", "Not_A_Label"],
        &["lock", "x", "--ttl", "0s", "--", "true"],
        &["lock", "x", "--ttl", "61s", "--", "true"],
        &["lock", "x", "--max-hold-time", "10ms", "--", "true"],
        &["break", "x", "--reason", ""],
    ] {
        let output = daemon.run(&[&["--output", "json"], arguments].concat());
        assert_eq!(code(&output), 65, "{arguments:?}: {}", stderr(&output));
        assert!(error(&output)["field"].is_string(), "{arguments:?}");
    }
    for arguments in [&["lock"][..], &["ls", "--no-such-flag"], &["check", "x", "-1"], &[]] {
        assert_eq!(code(&daemon.run(arguments)), 64, "{arguments:?}");
    }
    let output = daemon.run(&["ls", "--output", "json", "--no-such-flag"]);
    assert_eq!(error(&output)["kind"], "usage");
}

#[test]
fn daemon_waits_for_holders_at_shutdown() {
    let mut daemon = Daemon::start();
    let mut command =
        daemon.command(&["lock", "x", "--", "sh", "-c", "echo ready; read line; exit 3"]);
    let mut held = Running::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGTERM);
    let mut warning = String::new();
    BufReader::new(held.child.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    assert!(warning.contains("shutting down"), "{warning}");
    drop(held.child.stdin.take());
    assert_eq!(held.code(), Some(3));
    assert_eq!(daemon.process.code(), Some(0));
    // After a clean shutdown the next daemon grants without a wait.
    let daemon = daemon.restart(&[]);
    assert_eq!(code(&daemon.run(&["lock", "x", "--no-wait", "--", "true"])), 0);
}

#[test]
fn warnings_are_json_objects_with_json_output() {
    let daemon = Daemon::start();
    let script = "echo ready; read line";
    let mut command = daemon.command(&["lock", "x", "--output", "json", "--", "sh", "-c", script]);
    let mut held = Running::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGTERM);
    let mut warning = String::new();
    BufReader::new(held.child.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    let warning: Value = serde_json::from_str(&warning).unwrap();
    assert!(warning["note"]["message"].as_str().unwrap().contains("shutting down"), "{warning}");
}

#[test]
fn unread_warning_does_not_lose_lock() {
    let daemon = Daemon::start_with(&["--drain-timeout", "60s"]);
    let (_reader, writer) = full_pipe();
    // The command runs for longer than the TTL, so the lock needs keep-alives.
    let script = "echo ready; read line; sleep 6; exit 3";
    let mut command = daemon.command(&["lock", "x", "--ttl", "3s", "--", "sh", "-c", script]);
    let mut held = Running::start(command.stdin(Stdio::piped()).stderr(writer));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGTERM);
    drop(held.child.stdin.take());
    assert_eq!(held.code(), Some(3));
}

#[test]
fn second_signal_stops_daemon_immediately() {
    let mut daemon = Daemon::start();
    let mut command = daemon.command(&["lock", "x", "--", "sh", "-c", "echo ready; sleep 100"]);
    let mut held = Running::start(command.stderr(Stdio::piped()));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGINT);
    // The holder is warned after the daemon has received the first signal.
    let mut warning = String::new();
    BufReader::new(held.child.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    daemon.process.signal(Signal::SIGINT);
    assert_eq!(daemon.process.code(), Some(1));
}

#[test]
fn daemon_that_cannot_start_prints_reason() {
    let daemon = Daemon::start();
    let mut second = leasehold(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    let output = second.arg(daemon.dir.path().join("data")).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).starts_with("leasehold: "), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn configuration_is_checked_without_start() {
    let output = leasehold(&["serve", "--check", "--threads", "4", "--reflection"])
        .env("LEASEHOLD_DRAIN_TIMEOUT", "3s")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("threads = 4 # flag --threads\n"), "{text}");
    assert!(text.contains("reflection = true # flag --reflection\n"), "{text}");
    assert!(
        text.contains("drain_timeout = \"3s\" # environment variable LEASEHOLD_DRAIN_TIMEOUT\n"),
        "{text}"
    );

    let output = leasehold(&["serve", "--check", "--output", "json"]).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["config"]["threads"], 1);

    let output = leasehold(&["serve", "--threads", "0", "--listen", "0.0.0.0:1"])
        .env("LEASEHOLD_DRAIN_TIMEOUT", "soon")
        .output()
        .unwrap();
    assert_eq!(code(&output), 78);
    for key in ["threads", "listen", "drain_timeout"] {
        assert!(stderr(&output).contains(&format!("  {key} = ")), "{}", stderr(&output));
    }
}

/// Starts a daemon and returns a reader of its log.
fn logging_daemon(arguments: &[&str]) -> (Running, BufReader<ChildStderr>, TempDir) {
    let dir = TempDir::new().unwrap();
    let mut command = serve(dir.path(), "127.0.0.1:0", arguments);
    let mut daemon = Running::start(command.stderr(Stdio::piped()));
    let log = BufReader::new(daemon.child.stderr.take().unwrap());
    (daemon, log, dir)
}

/// Next line of a log that contains `text`.
fn logged(log: &mut impl BufRead, text: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the log ended without {text:?}");
        if line.contains(text) {
            return line;
        }
    }
}

#[test]
fn daemon_logs_start_in_one_line() {
    let (mut daemon, mut log, dir) = logging_daemon(&["--max-locks", "77"]);
    let address = daemon.line().strip_prefix("listening on ").unwrap().to_owned();
    let line = logged(&mut log, "daemon started");
    let data = dir.path().join("data");
    for part in [
        concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""),
        &format!("store=\"embedded\" location=\"{}\"", data.display()),
        &format!("listen=\"{address}\""),
        "max_locks=77",
        "default_ttl=10s",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn session_that_expires_with_locks_is_logged_once() {
    let (mut daemon, mut log, _dir) = logging_daemon(&["--log-format", "json"]);
    let address = daemon.line().strip_prefix("listening on ").unwrap().to_owned();
    let endpoint = format!("http://{address}");
    let script = "echo ready; sleep 1000";
    let mut command = leasehold(&["lock", "a", "--ttl", "1s", "-e", &endpoint]);
    let mut held = Running::start(command.args(["--", "sh", "-c", script]));
    assert_eq!(held.line(), "ready");
    held.signal(Signal::SIGKILL);
    // The next grant follows the expiry.
    let output = leasehold(&["lock", "a", "-e", &endpoint, "--", "true"]).output().unwrap();
    assert_eq!(code(&output), 0);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.code(), Some(0));
    let mut lines = String::new();
    log.read_to_string(&mut lines).unwrap();
    let expired: Vec<_> = lines.lines().filter(|line| line.contains("expired")).collect();
    assert_eq!(expired.len(), 1, "{lines}");
    let line: Value = serde_json::from_str(expired[0]).unwrap();
    assert_eq!(line["level"], "INFO");
    assert_eq!((&line["locks"], &line["ttl"]), (&"\"a\"".into(), &"1s".into()), "{line}");
    assert!(line["holder"].as_str().unwrap().starts_with("leasehold lock: sh"), "{line}");
    assert_eq!(line["session"].as_str().unwrap().len(), 16, "{line}");
}

#[test]
fn unknown_variable_is_reported_with_closest_name() {
    let check = |variable: &str| {
        let mut command = leasehold(&["serve", "--check"]);
        let output = command.env(variable, "1").output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stderr(&output)
    };
    assert_eq!(
        check("LEASEHOLD_DRIAN_TIMEOUT"),
        "leasehold: ignored the unknown environment variable LEASEHOLD_DRIAN_TIMEOUT; did you mean \
         LEASEHOLD_DRAIN_TIMEOUT?\n"
    );
    assert!(
        check("LEASEHOLD_QUORUM")
            .ends_with("ignored the unknown environment variable LEASEHOLD_QUORUM\n")
    );
    for known in [
        "LEASEHOLD_MAX_LOCKS",
        "LEASEHOLD_TOKEN",
        "LEASEHOLD_ENDPOINT",
        "LEASEHOLD_PORT",
        "LEASEHOLD_SERVICE_HOST",
        "LEASEHOLD_SERVICE_PORT_GRPC",
        "LEASEHOLD_HTTP_PORT_80_TCP_ADDR",
        "LEASEHOLDER",
    ] {
        assert_eq!(check(known), "", "{known}");
    }
    let daemon = Daemon::start();
    let warning = "ignored the unknown environment variable LEASEHOLD_NAMESPCE; did you mean \
                   LEASEHOLD_NAMESPACE?";
    for arguments in [
        &["lock", "q", "--", "true"][..],
        &["elect", "q", "--", "true"],
        &["ls"],
        &["get", "q"],
        &["step-down", "q", "-r", "test"],
        &["bench", "cycle", "--rounds", "1", "--length", "10ms"],
    ] {
        let mut command = daemon.command(arguments);
        let output = command.env("LEASEHOLD_NAMESPCE", "shop").output().unwrap();
        assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
        let messages = stderr(&output);
        let warnings: Vec<&str> = messages.lines().filter(|l| l.contains("variable")).collect();
        assert_eq!(warnings, [format!("leasehold: {warning}")], "{arguments:?}");
    }
    let mut command = daemon.command(&["ls", "-o", "json"]);
    let output = command.env("LEASEHOLD_NAMESPCE", "shop").output().unwrap();
    let note: Value = serde_json::from_str(stderr(&output).trim()).unwrap();
    assert_eq!(note["note"]["message"], warning);
    // The variables of a command under a lock or of Kubernetes are known.
    let nested = "$0 get outer; $0 elect inner --progress-timeout 1m -- $0 get inner";
    let script = format!("export LEASEHOLD_PORT=tcp://10.0.0.1:7420; {nested}");
    let mut command = daemon.command(&["lock", "outer", "--", "sh", "-c", &script]);
    let output = command.arg(leasehold_path()).env("LEASEHOLD_ENDPOINT", &daemon.endpoint);
    let output = output.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!stderr(&output).contains("variable"), "{}", stderr(&output));
    let mut second = serve(daemon.dir.path(), "127.0.0.1:0", &[]);
    let output = second.env("LEASEHOLD_DRIAN", "1").output().unwrap();
    assert_eq!(code(&output), 1, "the directory is in use");
    assert!(
        stderr(&output).contains("unknown environment variable LEASEHOLD_DRIAN"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn lock_without_command_holds_until_interrupted() {
    let daemon = Daemon::start();
    for (signal, options) in [
        (Signal::SIGTERM, &[][..]),
        (Signal::SIGINT, &["-o", "json"][..]),
        (Signal::SIGHUP, &["-n", "shop"][..]),
    ] {
        if is_ignored(signal) {
            continue;
        }
        // Standard input is at its end from the start.
        let mut held = daemon.begin(&[&["lock", "x"], options].concat());
        let line = held.line();
        let token: u64 = match options {
            ["-o", _] => {
                let object: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(
                    (&object["lock"], &object["namespace"]),
                    (&"x".into(), &"default".into())
                );
                object["token"].as_u64().unwrap()
            }
            _ => line.parse().unwrap(),
        };
        let namespace = if options.contains(&"shop") { "shop" } else { "default" };
        let lock = json(&daemon, &["get", "x", "-n", namespace]);
        assert_eq!((&lock["token"], &lock["held"]), (&token.into(), &true.into()));
        held.signal(signal);
        assert_eq!(held.code(), Some(0));
        assert_eq!(held.rest(), "");
        assert_eq!(json(&daemon, &["get", "x", "-n", namespace])["held"], false);
    }
}

#[test]
fn lock_without_command_exits_on_loss_and_leaves_lock_to_expire() {
    let daemon = Daemon::start();
    let mut command = daemon.command(&["lock", "x", "--ttl", "60s"]);
    let mut held = Running::start(command.stderr(Stdio::piped()));
    held.line();
    let before = json(&daemon, &["break", "x", "--reason", "stuck"]);
    assert_eq!(before["broken"], true);
    assert_eq!(held.code(), Some(73));
    let mut messages = String::new();
    held.child.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
    assert!(messages.starts_with("leasehold: lock \"x\" was broken by "), "{messages}");
    assert!(messages.ends_with(" (\"stuck\")\n"), "{messages}");
    // The protected work may still be running.
    let lock = json(&daemon, &["get", "x"]);
    assert_eq!((&lock["held"], &lock["ending"]), (&true.into(), &true.into()), "{lock}");
}

#[test]
fn broken_lock_is_explained_in_one_sentence() {
    let daemon = Daemon::start();
    let mut command = daemon.command(&["lock", "x", "--", "sh", "-c", "echo ready; sleep 1000"]);
    let mut held = Running::start(command.stderr(Stdio::piped()));
    assert_eq!(held.line(), "ready");
    daemon.run(&["break", "x", "-r", "testing it"]);
    assert_eq!(held.code(), Some(73));
    let mut messages = String::new();
    held.child.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
    assert!(messages.starts_with("leasehold: lock \"x\" was broken by "), "{messages}");
    assert!(messages.ends_with(" (\"testing it\"); stopped the command\n"), "{messages}");
}

#[test]
fn results_and_refusals_name_lock_and_flag() {
    let daemon = Daemon::start();
    let _holder = hold(&daemon, &["x"], "echo ready; sleep 100");
    let stdout = |arguments: &[&str]| String::from_utf8(daemon.run(arguments).stdout).unwrap();
    assert_eq!(stdout(&["check", "y", "5"]), "lock \"y\" is not held, so token 5 is not current\n");
    let unheld = stdout(&["break", "y", "-r", "test"]);
    assert_eq!(unheld, "lock \"y\" is not held; nothing to break\n");
    let no_leader = stdout(&["step-down", "y", "-r", "test"]);
    assert_eq!(no_leader, "election \"y\" has no leader; nothing to do\n");
    let broken = stdout(&["break", "x", "-r", "test"]);
    assert!(broken.starts_with("broke lock \"x\"; free within "), "{broken}");
    assert!(broken.contains("It was held by \"leasehold lock: sh\" on "), "{broken}");
    for (arguments, message) in [
        (&["get", ""][..], "invalid lock name: it is empty; use 1 to 256 bytes"),
        (&["get", "a\tb"], "invalid lock name \"a\\tb\": it has a control character (character 2)"),
        (
            &["get", "x", "-n", "A_b"],
            "invalid namespace \"A_b\": use 1 to 63 of a-z, 0-9 and '-', with no '-' at either end",
        ),
        (
            &["get", "x", "-e", "unix:socket"],
            "invalid endpoint \"unix:socket\": the path of the socket must be absolute; use \
             unix:/PATH",
        ),
        (
            &["get", "x", "-e", "http://127.0.0.1"],
            "invalid endpoint \"http://127.0.0.1\": the port is missing; use http://HOST:PORT",
        ),
    ] {
        let mut command = leasehold(arguments);
        if !arguments.contains(&"-e") {
            command.args(["-e", &daemon.endpoint]);
        }
        let output = command.output().unwrap();
        let expected = (65, format!("leasehold: {message}\n"));
        assert_eq!((code(&output), stderr(&output)), expected);
    }
}

#[test]
fn invalid_values_are_named_by_flag() {
    let daemon = Daemon::start();
    let long = "x".repeat(5000);
    let lock = |flag, value| vec!["lock", "x", flag, value, "--", "true"];
    let elect = |flag, value| vec!["elect", "x", flag, value, "--", "true"];
    let step_down = |flag, value| vec!["step-down", "x", "-r", "test", flag, value];
    let long_text = "has 5000 bytes; at most 256 are allowed";
    let lease_duration = "--lease-duration 5s is out of range: use whole seconds from 15s to 60s";
    for (arguments, message) in [
        (lock("--ttl", "90s"), "--ttl 90s is out of range: use 1s to 60s"),
        (lock("--ttl", "5h"), "--ttl 5h is out of range: use 1s to 60s"),
        (elect("--ttl", "0s"), "--ttl 0s is out of range: use 1s to 60s"),
        (step_down("--timeout", "1ms"), "--timeout 1ms is out of range: use 1s to 1h"),
        (step_down("--timeout", "2h"), "--timeout 2h is out of range: use 1s to 1h"),
        (elect("--value", &long), "--value has 5000 bytes; the maximum is 4096"),
        (lock("--max-hold-time", "10ms"), "--max-hold-time 10ms is too short; the minimum is 1s"),
        (lock("--lease-duration", "5s"), lease_duration),
        (elect("--lease-duration", "5s"), lease_duration),
        (vec!["break", "x", "-r", ""], "--reason is empty; a reason is required"),
        (vec!["step-down", "x", "-r", &long], &format!("--reason {long_text}")),
        (vec!["ls", &long], &format!("the prefix {long_text}")),
        (vec!["watch", "--prefix", &long], &format!("the prefix {long_text}")),
    ] {
        let output = daemon.run(&arguments);
        let expected = (65, format!("leasehold: {message}\n"));
        assert_eq!((code(&output), stderr(&output)), expected);
    }
    for arguments in [
        &["ls", "--limit", "0"][..],
        &["elect", "x", "--probe-command", "true", "--probe-threshold", "0", "--", "true"],
    ] {
        let output = daemon.run(arguments);
        assert_eq!(code(&output), 64);
        let message = "<COUNT>': use a whole number of at least 1\n";
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn lost_connection_is_noted_once_while_waiting() {
    let mut daemon = Daemon::start();
    let _holder = hold(&daemon, &["x"], "echo ready; sleep 100");
    let mut command = daemon.command(&["lock", "x", "-w", "4s", "--", "true"]);
    let mut waiter = Running::start(command.stderr(Stdio::piped()));
    until(async || (json(&daemon, &["get", "x"])["waiting"] == 1).then_some(())).await;
    daemon.process.child.kill().unwrap();
    daemon.process.child.wait().unwrap();
    let mut messages = String::new();
    waiter.child.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
    let lines: Vec<&str> = messages.lines().collect();
    assert_eq!(lines.len(), 2, "{messages}");
    assert!(lines[0].ends_with("; still waiting for lock \"x\""), "{messages}");
    let lost = lines[1].starts_with("leasehold: timed out after ");
    assert!(lost && lines[1].contains(" waiting for lock \"x\": can't connect to the daemon at "));
    assert!(lines[1].ends_with(": connection refused"), "{messages}");
}

#[test]
fn refusals_name_holder_and_start_in_local_time() {
    let daemon = Daemon::start();
    let _holder = hold(&daemon, &["x"], "echo ready; sleep 100");
    let since = |zone: &str| {
        let mut command = daemon.command(&["lock", "x", "--no-wait", "--", "true"]);
        let message = stderr(&command.env("TZ", zone).output().unwrap());
        assert!(message.starts_with("leasehold: lock \"x\" is held by \"leasehold lock: sh\" on "));
        assert!(message.ends_with("; use --wait to wait for it\n"), "{message}");
        let (_, since) = message.split_once(" since ").unwrap();
        since.split_once(" (").unwrap().0.rsplit(' ').next().unwrap().to_owned()
    };
    // The offsets of these zones differ by five and a half hours.
    let minutes = |time: &str| time.split(':').nth(1).unwrap().parse::<i32>().unwrap();
    let (utc, india) = (since("UTC"), since("IST-5:30"));
    assert_eq!((minutes(&utc) + 30) % 60, minutes(&india), "{utc} {india}");
    let waited = daemon.run(&["lock", "x", "-w", "100ms", "--", "true"]);
    let message = stderr(&waited);
    assert!(
        message.starts_with("leasehold: timed out after 100ms waiting for lock \"x\", held by ")
    );
    let output = leasehold(&["ls", "-e", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(
        stderr(&output),
        "leasehold: can't connect to the daemon at http://127.0.0.1:1: connection refused; start \
         it with \"leasehold serve\" or set --endpoint\n"
    );
}

#[test]
fn usage_does_not_mark_variables_as_required() {
    let daemon = Daemon::start();
    let mut command = daemon.command(&["check", "x"]);
    let output = command.env("LEASEHOLD_NAMESPACE", "shop").output().unwrap();
    assert_eq!(code(&output), 64);
    assert!(
        stderr(&output).contains("Usage: leasehold check <NAME> <TOKEN>"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn options_without_effect_are_refused() {
    for arguments in [
        &["completions", "bash", "--endpoint", "http://a:1"][..],
        &["--endpoint", "http://a:1", "completions", "bash"],
        &["serve", "--namespace", "a"],
        &["doctor", "-e", "http://a:1"],
        &["bench", "hold", "-n", "a"],
    ] {
        let output = leasehold(arguments).output().unwrap();
        assert_eq!(code(&output), 64, "{arguments:?}");
        assert!(stderr(&output).contains("unexpected argument '-"), "{}", stderr(&output));
    }
}

#[test]
fn list_covers_all_namespaces_up_to_limit() {
    let daemon = Daemon::start();
    let namespaces = ["shop", "default", "billing"];
    let _held = namespaces
        .map(|namespace| hold(&daemon, &["job", "-n", namespace], "echo ready; sleep 100"));
    let text = String::from_utf8(daemon.run(&["ls", "-A"]).stdout).unwrap();
    assert!(text.starts_with("NAMESPACE  NAME "), "{text}");
    let listed: Vec<_> = text.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(listed, ["billing", "default", "shop"]);
    let output = daemon.run(&["ls", "-A", "--limit", "2"]);
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap().lines().count(), 3);
    assert!(stderr(&output).contains("the first 2 locks"), "{}", stderr(&output));
    let output = daemon.run(&["ls", "-A", "--limit", "3", "-o", "json"]);
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap().lines().count(), 3);
    assert_eq!(stderr(&output), "");
}

#[test]
fn watch_lines_have_timestamps() {
    let daemon = Daemon::start();
    let mut text = Running::start(daemon.command(&["watch", "x"]).env("TZ", "UTC"));
    let line = text.line();
    let (time, rest) = line.split_at("2026-11-18 12:03:11".len());
    assert!(time.chars().filter(char::is_ascii_digit).count() == 14, "{line}");
    assert_eq!(rest, " x: free");
    let mut json = daemon.begin(&["watch", "x", "-o", "json"]);
    let object: Value = serde_json::from_str(&json.line()).unwrap();
    let utc = object["time"].as_str().unwrap();
    assert!(utc.ends_with('Z') && utc[..13] >= time.replace(' ', "T")[..13], "{utc} {time}");
}

/// Runs a command with a terminal as its standard output and standard error, and
/// returns everything that it writes there.
fn on_terminal(command: &mut Command) -> String {
    let terminal = openpty(None, None).unwrap();
    let slave = terminal.slave.try_clone().unwrap();
    let mut child = command.stdout(terminal.slave).stderr(slave).spawn().unwrap();
    // No other copy of the slave may be open, or the master never reads an end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut screen = Vec::new();
    // After the last close of the slave, the master reports an error.
    _ = File::from(terminal.master).read_to_end(&mut screen);
    child.wait().unwrap();
    String::from_utf8(screen).unwrap()
}

#[test]
fn terminal_output_has_token_and_colors_unless_refused() {
    let daemon = Daemon::start();
    let plain = |arguments: &[&str]| {
        let mut command = daemon.command(arguments);
        command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command
    };
    let script = ["lock", "x", "--", "sh", "-c", "echo token $LEASEHOLD_TOKEN"];
    let screen = on_terminal(&mut plain(&script));
    let token = screen.split("token ").last().unwrap().trim();
    assert!(screen.contains(&format!("acquired lock \"x\" with token {token}\r\n")), "{screen:?}");
    assert!(screen.contains("\x1b[1mleasehold:"), "{screen:?}");
    let screen = on_terminal(plain(&script).env("NO_COLOR", "1"));
    assert!(
        screen.contains("leasehold: acquired lock") && !screen.contains("\x1b[1m"),
        "{screen:?}"
    );

    let _held = hold(&daemon, &["y"], "echo ready; sleep 100");
    let colors = |command: &mut Command| on_terminal(command).contains("\x1b[33mheld");
    assert!(colors(&mut plain(&["ls"])));
    assert!(!colors(plain(&["ls"]).env("NO_COLOR", "1")));
    assert!(!on_terminal(&mut plain(&["ls", "-o", "json"])).contains('\x1b'));
    let piped = |name: &str| {
        let mut command = plain(&["ls"]);
        String::from_utf8(command.env(name, "1").output().unwrap().stdout).unwrap()
    };
    assert!(!piped("UNRELATED").contains('\x1b'));
    assert!(piped("CLICOLOR_FORCE").contains("\x1b[33mheld"));
}

#[test]
fn watchdog_kills_if_only_wall_clock_advanced() {
    let mut command = Command::new("sleep");
    let mut victim = command.arg("1000").process_group(0).spawn().unwrap();
    let mut command = leasehold(&["watchdog", "--output", "text"]);
    let mut watchdog = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The message is an hour old by the wall clock and new by the boot-time clock, and
    // the grant was valid for 60 s.
    let boot = Moment::now().since(Moment::from_boot(Duration::ZERO));
    let wall = clock::wall().duration_since(UNIX_EPOCH).unwrap();
    let message = |passed: Duration, pid: u32| {
        let kill_at = boot + Duration::from_secs(60);
        let wall = wall - passed;
        let times = [kill_at, boot, wall].map(|time| time.as_nanos().to_string()).join(" ");
        format!("kill-at {times}\ngroup {pid}\n")
    };
    let mut pipe = watchdog.stdin.take().unwrap();
    pipe.write_all(message(Duration::from_secs(3600), victim.id()).as_bytes()).unwrap();
    // By the boot-time clock alone, the kill would be a minute away.
    assert_eq!(victim.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
    assert!(!(Moment::from_boot(boot) + Duration::from_secs(60)).has_passed());
    assert!(watchdog.wait().unwrap().success());
}

#[test]
fn watchdog_command_requires_pipe() {
    let output = leasehold(&["watchdog", "--output", "text"]).output().unwrap();
    assert_eq!(code(&output), 64);
}

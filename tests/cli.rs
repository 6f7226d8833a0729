//! The program as a whole: a daemon, and commands under its locks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    pty::openpty,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{Daemon, LEASEHOLD, Running, is_ignored, program, until};

/// Runs a script under a lock until it has said "ready".
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

/// The children of a process whose command line has this word.
fn children(parent: u32, word: &str) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    let is_meant = |child: &&str| {
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    let meant = children.split_whitespace().filter(is_meant);
    meant.map(|child| Pid::from_raw(child.parse().unwrap())).collect()
}

fn is_stopped(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().any(|line| line.starts_with("State:\tT"))
}

/// A pipe that takes nothing more, and nobody reads.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'x'; 512]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

/// Lets the process that waits to open this pipe for reading go on.
fn let_go_on(fifo: &Path) {
    drop(File::options().write(true).open(fifo).unwrap());
}

/// Stays, whatever it is asked.
const STUBBORN: &str = "trap '' TERM; echo ready; while :; do sleep 0.1; done";

#[test]
fn the_command_sees_its_lock_and_ends_as_itself() {
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
fn commands_that_cannot_be_run_end_as_in_shells_and_free_the_lock() {
    let daemon = Daemon::start();
    assert_eq!(code(&daemon.run(&["lock", "a", "--", "no-such-command"])), 127);
    let output = daemon.run(&["lock", "a", "--no-wait", "--", "/"]);
    assert_eq!(code(&output), 126);
    assert!(stderr(&output).contains("can't run /"), "{}", stderr(&output));
    assert_eq!(json(&daemon, &["get", "a"])["held"], false);
}

#[test]
fn two_commands_run_one_after_the_other_the_second_with_the_greater_token() {
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
    // `read` found no line.
    assert_eq!(first.code(), Some(1));
    assert_eq!(second.code(), Some(0));
}

#[test]
fn who_does_not_get_the_lock_in_time_is_told_who_has_it() {
    let daemon = Daemon::start();
    let _holder = hold(&daemon, &["x", "--label", "job=nightly"], "echo ready; sleep 100");
    for limit in [&["--no-wait"][..], &["--wait", "100ms"]] {
        let output = daemon.run(&[&["lock", "x"], limit, &["--", "true"]].concat());
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
fn signals_reach_the_command() {
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
#[cfg_attr(not(target_os = "linux"), ignore = "looks into /proc")]
async fn a_command_that_stands_still_can_be_ended() {
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
fn a_command_that_waits_for_a_terminal_that_is_not_there_does_not_keep_the_lock() {
    let daemon = Daemon::start();
    let script = "echo ready; kill -TTIN $$; sleep 1000";
    let mut command = Command::new("setsid");
    command.args([LEASEHOLD, "lock", "x", "--ttl", "1s", "--endpoint", &daemon.endpoint]);
    let mut held = Running::start(command.args(["--", "sh", "-c", script]).stdin(Stdio::null()));
    assert_eq!(held.line(), "ready");
    let next = daemon.run(&["lock", "x", "--wait", "30s", "--", "true"]);
    assert_eq!((code(&next), stderr(&next)), (0, String::new()));
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs setsid")]
fn the_command_gets_the_terminal_when_it_asks_for_it() {
    let daemon = Daemon::start();
    let terminal = openpty(None, None).unwrap();
    // Neither standard input nor standard output is the terminal.
    let script = "exec \"$0\" lock x -- sh -c 'read line </dev/tty; echo got $line' </dev/null";
    let mut command = Command::new("setsid");
    command.args(["--ctty", "sh", "-c", script, LEASEHOLD]);
    command.env("LEASEHOLD_ENDPOINT", &daemon.endpoint).stdin(terminal.slave);
    let mut held = Running::start(&mut command);
    drop(command);
    File::from(terminal.master.try_clone().unwrap()).write_all(b"this\n").unwrap();
    assert_eq!(held.line(), "got this");
    assert_eq!(held.code(), Some(0));
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "looks into /proc")]
async fn without_a_keeper_the_command_does_not_run() {
    let daemon = Daemon::start();
    // Each process of the program waits for this one when it is loaded.
    let gate = daemon.dir.path().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut command = daemon.command(&["lock", "x", "--", "echo", "ran"]);
    let mut held = Running::start(command.env("LD_PRELOAD", &gate).stderr(Stdio::piped()));
    let_go_on(&gate);
    let pid = held.pid();
    let keeper = until(async || children(pid, "keeper").pop()).await;
    until(async || children(pid, "launch").pop()).await;
    kill(keeper, Signal::SIGKILL).unwrap();
    until(async || children(pid, "keeper").is_empty().then_some(())).await;
    let_go_on(&gate);
    assert_eq!(held.rest(), "");
    let mut said = String::new();
    held.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("can't tell the keeper"), "{said}");
    assert_eq!(held.code(), Some(1));
    assert_eq!(json(&daemon, &["get", "x"])["held"], false);
}

#[test]
fn a_signal_ends_the_wait() {
    let daemon = Daemon::start();
    let _holder = hold(&daemon, &["x"], "echo ready; sleep 100");
    let mut watch = daemon.begin(&["watch", "x", "--output", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&watch.line()).unwrap()["initial"], true);
    let mut waiter = daemon.begin(&["lock", "x", "--", "true"]);
    // Until it is in the queue.
    while serde_json::from_str::<Value>(&watch.line()).unwrap()["waiting"] != 1 {}
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.code(), Some(128 + 15));
    while serde_json::from_str::<Value>(&watch.line()).unwrap()["waiting"] != 0 {}
}

#[test]
fn a_broken_lock_takes_the_whole_group_with_it() {
    let daemon = Daemon::start();
    // The background process ignores the request to end, and holds the pipe.
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
fn the_longest_hold_ends_the_command() {
    let daemon = Daemon::start();
    let arguments = ["lock", "x", "--longest-hold", "1s", "--output", "json"];
    let output = daemon.run(&[&arguments[..], &["--", "sleep", "1000"]].concat());
    assert_eq!(code(&output), 73);
    let error = error(&output);
    assert_eq!((&error["kind"], &error["reason"]), (&"lost".into(), &"held_too_long".into()));
}

#[test]
fn a_stopped_cli_finds_its_command_dead() {
    let daemon = Daemon::start();
    // Only the command holds this one open: a stopped process keeps its output.
    let fifo = daemon.dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = format!("exec >{}; {STUBBORN}", fifo.display());
    let arguments = ["lock", "x", "--ttl", "1s", "--", "sh", "-c", &script];
    let mut held = daemon.begin(&arguments);
    let mut output = BufReader::new(File::open(&fifo).unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    held.signal(Signal::SIGSTOP);
    // Ends when the keeper has killed the command.
    output.read_to_string(&mut line).unwrap();
    let next = daemon.run(&["lock", "x", "--wait", "30s", "--", "true"]);
    assert_eq!(code(&next), 0);
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
}

#[test]
fn a_killed_cli_takes_its_command_with_it() {
    let daemon = Daemon::start();
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done";
    let mut held = hold(&daemon, &["x", "--ttl", "3s"], script);
    held.signal(Signal::SIGKILL);
    assert_eq!(held.rest(), "asked\n");
    let next = daemon.run(&["lock", "x", "--wait", "30s", "--", "true"]);
    assert_eq!(code(&next), 0);
}

#[test]
fn a_dead_daemon_ends_the_command() {
    let daemon = Daemon::start();
    let mut held = hold(&daemon, &["x", "--ttl", "1s"], STUBBORN);
    daemon.process.signal(Signal::SIGKILL);
    held.rest();
    assert_eq!(held.code(), Some(73));
    assert_eq!(code(&daemon.run(&["ls"])), 69);
}

#[test]
fn what_a_command_leaves_running_is_left_alone() {
    let daemon = Daemon::start();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let output = daemon.run(&["lock", "x", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 0);
    let left: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(kill(Pid::from_raw(left), Signal::SIGKILL), Ok(()));
}

#[test]
fn locks_are_listed_for_people_and_programs() {
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
fn a_reader_that_goes_away_is_no_failure() {
    let daemon = Daemon::start();
    let _held = hold(&daemon, &["x"], "echo ready; sleep 100");
    let mut list = daemon.command(&["ls"]);
    let mut list = list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(list.stdout.take());
    let output = list.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
}

#[test]
fn a_check_does_not_depend_on_who_reads_it() {
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
fn bad_input_is_refused_with_its_field() {
    let daemon = Daemon::start();
    let long = "x".repeat(257);
    for arguments in [
        &["get", ""][..],
        &["get", &long],
        &["get", "a\tb"],
        &["ls", "--namespace", "Not_A_Label"],
        &["lock", "x", "--ttl", "0s", "--", "true"],
        &["lock", "x", "--ttl", "61s", "--", "true"],
        &["lock", "x", "--longest-hold", "10ms", "--", "true"],
        &["break", "x", "--reason", ""],
    ] {
        let output = daemon.run(&[&["--output", "json"], arguments].concat());
        assert_eq!(code(&output), 65, "{arguments:?}: {}", stderr(&output));
        assert!(error(&output)["field"].is_string(), "{arguments:?}");
    }
    for arguments in [&["lock", "x"][..], &["ls", "--no-such-flag"], &["check", "x", "-1"], &[]] {
        assert_eq!(code(&daemon.run(arguments)), 64, "{arguments:?}");
    }
    let output = daemon.run(&["ls", "--output", "json", "--no-such-flag"]);
    assert_eq!(error(&output)["kind"], "usage");
}

#[test]
fn a_daemon_that_is_asked_to_stop_waits_for_its_holders() {
    let mut daemon = Daemon::start();
    let mut command =
        daemon.command(&["lock", "x", "--", "sh", "-c", "echo ready; read line; exit 3"]);
    let mut held = Running::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGTERM);
    let mut warning = String::new();
    BufReader::new(held.child.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    assert!(warning.contains("stopping"), "{warning}");
    drop(held.child.stdin.take());
    assert_eq!(held.code(), Some(3));
    assert_eq!(daemon.process.code(), Some(0));
    // After that, nothing has to be waited for.
    let daemon = daemon.restart(&[]);
    assert_eq!(code(&daemon.run(&["lock", "x", "--no-wait", "--", "true"])), 0);
}

#[test]
fn warnings_are_objects_for_programs() {
    let daemon = Daemon::start();
    let script = "echo ready; read line";
    let mut command = daemon.command(&["lock", "x", "--output", "json", "--", "sh", "-c", script]);
    let mut held = Running::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGTERM);
    let mut warning = String::new();
    BufReader::new(held.child.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    let warning: Value = serde_json::from_str(&warning).unwrap();
    assert!(warning["note"]["message"].as_str().unwrap().contains("stopping"), "{warning}");
}

#[test]
fn a_warning_that_nobody_reads_does_not_cost_the_lock() {
    let daemon = Daemon::start_with(&["--drain", "60s"]);
    let (_reader, writer) = full_pipe();
    // Longer than the lock would last if it were not kept alive.
    let script = "echo ready; read line; sleep 6; exit 3";
    let mut command = daemon.command(&["lock", "x", "--ttl", "3s", "--", "sh", "-c", script]);
    let mut held = Running::start(command.stdin(Stdio::piped()).stderr(writer));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGTERM);
    drop(held.child.stdin.take());
    assert_eq!(held.code(), Some(3));
}

#[test]
fn a_second_signal_stops_the_daemon_at_once() {
    let mut daemon = Daemon::start();
    let mut command = daemon.command(&["lock", "x", "--", "sh", "-c", "echo ready; sleep 100"]);
    let mut held = Running::start(command.stderr(Stdio::piped()));
    assert_eq!(held.line(), "ready");
    daemon.process.signal(Signal::SIGINT);
    // The first has been heard when the holder is warned.
    let mut warning = String::new();
    BufReader::new(held.child.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    daemon.process.signal(Signal::SIGINT);
    assert_eq!(daemon.process.code(), Some(1));
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let daemon = Daemon::start();
    let mut second = leasehold(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    let output = second.arg(daemon.dir.path().join("data")).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).starts_with("leasehold: "), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn the_configuration_can_be_checked() {
    let output = leasehold(&["serve", "--check", "--threads", "4", "--reflection"])
        .env("LEASEHOLD_DRAIN", "3s")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("threads = 4 # flag --threads\n"), "{text}");
    assert!(text.contains("reflection = true # flag --reflection\n"), "{text}");
    assert!(text.contains("drain = \"3s\" # environment variable LEASEHOLD_DRAIN\n"), "{text}");

    let output = leasehold(&["serve", "--check", "--output", "json"]).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["config"]["threads"], 1);

    let output = leasehold(&["serve", "--threads", "0", "--listen", "0.0.0.0:1"])
        .env("LEASEHOLD_DRAIN", "soon")
        .output()
        .unwrap();
    assert_eq!(code(&output), 78);
    for key in ["threads", "listen", "drain"] {
        assert!(stderr(&output).contains(&format!("  {key} = ")), "{}", stderr(&output));
    }
}

#[test]
fn the_keeper_does_not_run_alone() {
    let output = leasehold(&["keeper", "--output", "text"]).output().unwrap();
    assert_eq!(code(&output), 64);
}

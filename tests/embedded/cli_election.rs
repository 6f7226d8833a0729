//! Elections on the command line: real candidates, leaders and observers.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
};

use leasehold_test_support::{
    Daemon, Running,
    election_cli::{
        EXITS_ON_SIGTERM, IGNORES_SIGTERM, begin, begin_with_stderr, candidates, code, elect,
        leader, next_value, stderr, step_down, token,
    },
    is_ignored, until,
};
use nix::{pty::openpty, sys::signal::Signal};
use serde_json::{Value, json};

/// Process states of the children of a process, as in `/proc`. `Z` is a zombie.
fn children(parent: u32) -> Vec<String> {
    let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = fs::read_to_string(entry.unwrap().path().join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let (state, fields) = fields.split_once(' ')?;
        (fields.split(' ').next()? == parent.to_string()).then(|| state.to_owned())
    });
    stats.collect()
}

fn fifo(daemon: &Daemon) -> std::path::PathBuf {
    let fifo = daemon.dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo
}

#[test]
fn command_gets_election_variables_and_sets_exit_code() {
    let daemon = Daemon::start();
    let script = "echo $LEASEHOLD_ELECTION, $LEASEHOLD_LOCK in $LEASEHOLD_NAMESPACE; \
                  test $LEASEHOLD_TOKEN -gt 0; exit 7";
    for options in [&[][..], &["--once"]] {
        let output =
            elect(&daemon, &[&["--namespace", "shop"], options].concat(), script).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), "jobs, jobs in shop\n");
        assert_eq!(code(&output), 7, "{}", stderr(&output));
    }
    assert_eq!(code(&elect(&daemon, &[], "exit 0").output().unwrap()), 0);
    for (command, expected) in [("no-such-command", 127), ("/", 126)] {
        let output = daemon.run(&["elect", "jobs", "--restart", "--", command]);
        assert_eq!(code(&output), expected, "{}", stderr(&output));
    }
    assert_eq!(leader(&daemon)["leader"], Value::Null);
}

#[tokio::test]
async fn killed_leader_is_followed_with_higher_token() {
    let daemon = Daemon::start();
    let mut first = begin(&daemon, &["--ttl", "1s", "--value", "one"], IGNORES_SIGTERM);
    let low = token(&mut first);
    let mut second = begin(&daemon, &["--value", "two"], EXITS_ON_SIGTERM);
    candidates(&daemon, 1).await;
    let state = leader(&daemon);
    assert_eq!(state["leader"]["value"], "one");
    assert_eq!(state["leader"]["value_base64"], "b25l");
    assert_eq!(state["leader"]["token"], low);
    assert_eq!(state["leader"]["local"], true);
    first.signal(Signal::SIGKILL);
    let high = token(&mut second);
    assert!(high > low, "{high} after {low}");
    assert_eq!(leader(&daemon)["leader"]["value"], "two");
    // The watchdog has killed the command, which held the pipe open.
    assert_eq!(first.rest(), "");
}

#[tokio::test]
async fn signal_releases_leadership_and_sets_exit_code() {
    let daemon = Daemon::start();
    let mut first = begin(&daemon, &["--ttl", "60s"], EXITS_ON_SIGTERM);
    token(&mut first);
    let mut second = begin(&daemon, &["--ttl", "60s"], EXITS_ON_SIGTERM);
    candidates(&daemon, 1).await;
    first.signal(Signal::SIGTERM);
    assert_eq!(first.line(), "asked");
    assert_eq!(first.code(), Some(4));
    // A wait for the TTL would exceed the timeout of this test.
    token(&mut second);
    // A candidate that does not lead exits by the signal.
    let signals = [Signal::SIGTERM, Signal::SIGINT];
    for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        let mut third = begin(&daemon, &[], EXITS_ON_SIGTERM);
        candidates(&daemon, 1).await;
        third.signal(signal);
        assert_eq!(third.code(), Some(128 + signal as i32));
        candidates(&daemon, 0).await;
    }
}

#[test]
fn command_that_ignores_sigterm_is_killed_after_drain_timeout() {
    let daemon = Daemon::start();
    let mut leading =
        begin(&daemon, &["--ttl", "60s", "--drain-timeout", "100ms"], IGNORES_SIGTERM);
    token(&mut leading);
    leading.signal(Signal::SIGTERM);
    assert_eq!(leading.code(), Some(128 + 9));
    assert_eq!(leader(&daemon)["leader"], Value::Null);
}

#[test]
fn loss_ends_process_group_and_starts_next_campaign() {
    let daemon = Daemon::start();
    // The background process ignores SIGTERM and keeps the fifo open.
    let fifo = daemon.dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = format!(
        "echo $LEASEHOLD_TOKEN; (trap '' TERM; sleep 1000) >{} & trap 'echo asked; exit' TERM; wait",
        fifo.display()
    );
    let (mut leading, mut messages) = begin_with_stderr(&daemon, &["--ttl", "30s"], &script);
    let low = token(&mut leading);
    let mut background = File::open(&fifo).unwrap();
    assert_eq!(code(&daemon.run(&["break", "jobs", "--reason", "test"])), 0);
    assert_eq!(leading.line(), "asked");
    background.read_to_end(&mut Vec::new()).unwrap();
    messages.until("next campaign in");
    assert!(token(&mut leading) > low);
}

#[test]
fn background_process_does_not_outlive_leadership() {
    let daemon = Daemon::start();
    let output = elect(&daemon, &[], "sleep 1000 & echo left; exit 0").output().unwrap();
    // The output ends because the background process was killed.
    assert_eq!((code(&output), output.stdout), (0, b"left\n".to_vec()));
}

#[tokio::test]
async fn exited_processes_are_reaped() {
    let daemon = Daemon::start();
    // These processes lose their parent, and one of them leaves the process group too.
    let script = "(true & sleep 0.1 & setsid true &); trap 'exit' TERM; echo $LEASEHOLD_TOKEN; \
                  while :; do sleep 0.05; done";
    let options = ["--probe-command", "true & exit 0", "--probe-interval", "50ms"];
    for probe in [&[][..], &options] {
        let (mut leading, _notes) =
            begin_with_stderr(&daemon, &[&["--ttl", "30s"], probe].concat(), script);
        for _ in 0..3 {
            token(&mut leading);
            // Two children remain: the watchdog and the command.
            until(async || {
                let states = children(leading.pid());
                (states.len() == 2 && !states.contains(&"Z".to_owned())).then_some(())
            })
            .await;
            assert_eq!(code(&daemon.run(&["break", "jobs", "--reason", "test"])), 0);
        }
        token(&mut leading);
        leading.signal(Signal::SIGTERM);
        leading.end();
    }
}

#[test]
fn loss_by_silent_daemon_is_reported_as_expired() {
    let daemon = Daemon::start();
    let options = ["--once", "--output", "json", "--ttl", "2s"];
    let (mut leading, mut messages) = begin_with_stderr(&daemon, &options, EXITS_ON_SIGTERM);
    token(&mut leading);
    daemon.process.signal(Signal::SIGSTOP);
    let error: Value = serde_json::from_str(&messages.until("\"error\"")).unwrap();
    daemon.process.signal(Signal::SIGCONT);
    assert_eq!(error["error"]["reason"], "expired");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("no keep-alive response from the daemon"), "{message}");
    assert_eq!(leading.code(), Some(73));
}

#[test]
fn loss_ends_candidate_with_once() {
    let daemon = Daemon::start();
    let options = ["--once", "--output", "json", "--ttl", "30s"];
    let (mut leading, mut messages) = begin_with_stderr(&daemon, &options, EXITS_ON_SIGTERM);
    token(&mut leading);
    assert_eq!(code(&daemon.run(&["break", "jobs", "--reason", "test"])), 0);
    let error: Value = serde_json::from_str(&messages.until("\"error\"")).unwrap();
    assert_eq!(error["error"]["kind"], "lost");
    assert_eq!(error["error"]["reason"], "broken");
    assert_eq!(leading.code(), Some(73));
}

#[test]
fn failed_command_campaigns_again_with_restart() {
    let daemon = Daemon::start();
    let marker = daemon.dir.path().join("marker");
    let script = format!(
        "echo $LEASEHOLD_TOKEN; test -e {0} && exit 0; touch {0}; exit 9",
        marker.display()
    );
    let (mut leading, mut messages) = begin_with_stderr(&daemon, &["--restart"], &script);
    let low = token(&mut leading);
    messages.until("the command exited with 9; next campaign in");
    // In the delay, another candidate leads.
    let output = elect(&daemon, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
    let between: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(between > low);
    assert!(token(&mut leading) > between);
    assert_eq!(leading.code(), Some(0));
}

#[tokio::test]
async fn leader_drains_on_step_down_and_campaigns_again() {
    let daemon = Daemon::start();
    let without_leader = step_down(&daemon, "30s");
    assert_eq!(code(&without_leader), 0);
    assert!(String::from_utf8(without_leader.stdout).unwrap().contains("no leader"));

    let (mut first, mut messages) =
        begin_with_stderr(&daemon, &["--ttl", "60s", "--value", "one"], EXITS_ON_SIGTERM);
    let low = token(&mut first);
    let mut second = begin(&daemon, &["--ttl", "60s", "--value", "two"], EXITS_ON_SIGTERM);
    candidates(&daemon, 1).await;
    let asked = step_down(&daemon, "10m");
    assert_eq!(code(&asked), 0);
    assert!(String::from_utf8(asked.stdout).unwrap().starts_with("asked the leader of "));
    assert_eq!(first.line(), "asked");
    let high = token(&mut second);
    assert!(high > low);
    assert!(
        messages.until("asked the leader of \"jobs\" to step down").contains("(\"an upgrade\")")
    );
    messages.until("stepped down from \"jobs\"; next campaign in");
    candidates(&daemon, 1).await;
    second.signal(Signal::SIGTERM);
    assert!(token(&mut first) > high);

    // With --once, the leader exits with 0 after a step-down and does not campaign again.
    first.signal(Signal::SIGTERM);
    assert_eq!(first.code(), Some(4));
    let mut third = begin(&daemon, &["--once"], EXITS_ON_SIGTERM);
    token(&mut third);
    assert_eq!(code(&step_down(&daemon, "10m")), 0);
    assert_eq!(third.code(), Some(0));
}

#[test]
fn leader_that_does_not_drain_is_killed_before_deadline() {
    let daemon = Daemon::start();
    let mut leading = begin(&daemon, &["--once", "--ttl", "2s"], IGNORES_SIGTERM);
    token(&mut leading);
    assert_eq!(code(&step_down(&daemon, "2s")), 0);
    assert_eq!(leading.code(), Some(0), "it resigned in time");
    assert_eq!(leader(&daemon)["leader"], Value::Null);
}

#[test]
fn candidate_leads_again_after_daemon_restart() {
    let mut daemon = Daemon::start();
    let (mut leading, mut messages) = begin_with_stderr(&daemon, &[], EXITS_ON_SIGTERM);
    let low = token(&mut leading);
    daemon.process.signal(Signal::SIGTERM);
    assert_eq!(leading.line(), "asked");
    messages.until("stepped down from");
    assert!(daemon.process.end().success());
    let daemon = daemon.restart(&[]);
    assert!(token(&mut leading) > low);
    assert!(!leader(&daemon)["leader"].is_null());
}

#[test]
fn shutdown_does_not_shorten_validity_of_leadership() {
    let daemon = Daemon::start_with(&["--drain-timeout", "1s"]);
    let script = "trap 'echo asked; sleep 2; echo done; exit 4' TERM; echo $LEASEHOLD_TOKEN; \
                  while :; do sleep 0.05; done";
    let (mut leading, _notes) = begin_with_stderr(&daemon, &["--ttl", "30s", "--once"], script);
    token(&mut leading);
    daemon.process.signal(Signal::SIGTERM);
    assert_eq!(leading.line(), "asked");
    assert_eq!(leading.line(), "done");
}

/// Answers HTTP requests with the status in the file.
fn http_server(status: std::path::PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while head.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let status = fs::read_to_string(&status).unwrap();
            write!(stream, "HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    port
}

/// Leads with a probe, makes the probe fail with `fail`, and checks that the leader resigns.
fn resigns_after_probe_failure(daemon: &Daemon, probe: &[&str], fail: impl FnOnce(), cause: &str) {
    let options = ["--probe-interval", "50ms", "--probe-threshold", "2", "--ttl", "60s"];
    let (mut leading, mut messages) =
        begin_with_stderr(daemon, &[probe, &options].concat(), EXITS_ON_SIGTERM);
    let low = token(&mut leading);
    fail();
    let line = messages.until("probe failed 2 times in a row");
    assert!(line.contains(cause), "{line}");
    assert_eq!(leading.line(), "asked");
    messages.until("resigned from \"jobs\"; next campaign in");
    let next = elect(daemon, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
    let next: u64 = String::from_utf8(next.stdout).unwrap().trim().parse().unwrap();
    assert!(next > low);
}

#[test]
fn http_probe_failure_resigns() {
    let daemon = Daemon::start();
    let status = daemon.dir.path().join("status");
    fs::write(&status, "204").unwrap();
    let url = format!("http://127.0.0.1:{}/healthz?deep=1", http_server(status.clone()));
    let fail = || fs::write(&status, "503").unwrap();
    resigns_after_probe_failure(&daemon, &["--probe-http", &url], fail, "status 503");
}

#[test]
fn grpc_probe_failure_resigns() {
    let daemon = Daemon::start();
    // The probed server is another daemon, which has the health service of gRPC.
    let mut server = Daemon::start();
    let endpoint = server.endpoint.clone();
    resigns_after_probe_failure(
        &daemon,
        &["--probe-grpc", &endpoint],
        || assert!(server.stop().success()),
        "refused",
    );
}

#[test]
fn grpc_probe_of_unknown_service_fails() {
    let daemon = Daemon::start();
    let endpoint = format!("{}/no.such.Service", daemon.endpoint);
    resigns_after_probe_failure(&daemon, &["--probe-grpc", &endpoint], || (), "NotFound");
}

#[test]
fn command_probe_failure_resigns() {
    let daemon = Daemon::start();
    let file = daemon.dir.path().join("healthy");
    fs::write(&file, "").unwrap();
    let script = format!("test -e {} && test $LEASEHOLD_TOKEN -gt 0", file.display());
    let fail = || fs::remove_file(&file).unwrap();
    resigns_after_probe_failure(&daemon, &["--probe-command", &script], fail, "exit status: 1");
}

#[test]
fn timed_out_probe_fails_and_is_killed_with_children() {
    let daemon = Daemon::start();
    let fifo = daemon.dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // A child of the shell keeps the fifo open.
    let script = format!("sleep 1000 >{}; true", fifo.display());
    let options =
        ["--probe-command", &script, "--probe-timeout", "2s", "--probe-threshold", "1", "--once"];
    let options = [&options[..], &["--probe-interval", "50ms", "--output", "json"]].concat();
    let (mut leading, mut messages) = begin_with_stderr(&daemon, &options, EXITS_ON_SIGTERM);
    token(&mut leading);
    File::open(&fifo).unwrap().read_to_end(&mut Vec::new()).unwrap();
    let error: Value = serde_json::from_str(&messages.until("\"error\"")).unwrap();
    assert_eq!(error["error"]["kind"], "unhealthy");
    assert!(
        error["error"]["message"].as_str().unwrap().contains("no response within 2s"),
        "{error}"
    );
    assert_eq!(leading.code(), Some(73));
}

#[test]
fn children_of_completed_probe_are_killed() {
    let daemon = Daemon::start();
    let fifo = fifo(&daemon);
    let script = format!("exec 3>{}; sleep 1000 & exit 0", fifo.display());
    let options = ["--probe-command", &script, "--probe-interval", "1s", "--ttl", "60s"];
    let mut leading = begin(&daemon, &options, EXITS_ON_SIGTERM);
    token(&mut leading);
    File::open(&fifo).unwrap().read_to_end(&mut Vec::new()).unwrap();
    // The probe succeeded, so the leader still leads.
    assert!(!leader(&daemon)["leader"].is_null());
    leading.signal(Signal::SIGTERM);
    assert_eq!(leading.line(), "asked");
}

#[test]
fn watchdog_ends_probe_after_cli_is_killed() {
    let daemon = Daemon::start();
    let fifo = fifo(&daemon);
    let script = format!("exec 3>{}; sleep 1000; true", fifo.display());
    let options = ["--probe-command", &script, "--probe-interval", "50ms"];
    let options = [&options[..], &["--probe-timeout", "10m", "--ttl", "60s"]].concat();
    let mut leading = begin(&daemon, &options, EXITS_ON_SIGTERM);
    token(&mut leading);
    let mut probe = File::open(&fifo).unwrap();
    leading.signal(Signal::SIGKILL);
    probe.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn probe_output_is_reported_only_on_failure() {
    let daemon = Daemon::start();
    // The output exceeds the capacity of a pipe.
    let verbose = "head -c 200000 /dev/zero | tr '\\0' x >&2; echo no disk >&2; exit 3";
    for (script, cause) in [
        (verbose, "exit status: 3: "),
        ("echo no disk >&2; kill -9 $$", "signal: 9 (SIGKILL): no disk"),
        ("exit 5", "exit status: 5"),
        ("echo fine >&2; sleep 1000", "no response within"),
    ] {
        let options = ["--probe-interval", "50ms", "--probe-threshold", "1", "--once"];
        let more = ["--probe-timeout", "3s", "--output", "json", "--probe-command", script];
        let output = elect(&daemon, &[&options[..], &more].concat(), "exec sleep 1000").output();
        let output = output.unwrap();
        assert_eq!(code(&output), 73);
        let messages = stderr(&output);
        let lines = messages.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        let message = lines.last().unwrap()["error"]["message"].as_str().unwrap();
        assert!(message.contains(cause) && message.len() < 2000, "{message}");
        assert_eq!(message.ends_with("no disk"), script.contains("no disk"), "{message}");
    }
}

#[test]
fn missing_progress_directory_is_reported_before_campaign() {
    let daemon = Daemon::start();
    let missing = daemon.dir.path().join("missing");
    let mut command = elect(&daemon, &["--progress-timeout", "10s"], "echo led");
    let output = command.env("TMPDIR", &missing).output().unwrap();
    assert_eq!((code(&output), output.stdout.as_slice()), (1, &b""[..]));
    let message = stderr(&output);
    assert!(message.contains(missing.to_str().unwrap()) && message.contains("TMPDIR"), "{message}");
    assert!(!message.contains("leading"), "{message}");
}

#[test]
fn stuck_leader_resigns() {
    let daemon = Daemon::start();
    // The command reports progress for longer than the timeout, then stops.
    let script = "echo $LEASEHOLD_PROGRESS_FILE; trap 'echo asked; exit' TERM; \
                  for i in 1 2 3 4 5 6 7 8 9 10; do touch $LEASEHOLD_PROGRESS_FILE; sleep 0.3; done; \
                  echo stuck; while :; do sleep 0.05; done";
    let (mut leading, mut messages) =
        begin_with_stderr(&daemon, &["--progress-timeout", "2s"], script);
    let file = leading.line();
    assert_eq!(leading.line(), "stuck");
    assert_eq!(leading.line(), "asked");
    messages.until("the command is stuck");
    messages.until("next campaign in");
    assert!(!fs::exists(&file).unwrap(), "the file is removed with its leadership");
    assert_ne!(leading.line(), file);
    leading.signal(Signal::SIGTERM);
    leading.end();
}

#[test]
fn invalid_input_is_refused_with_field() {
    let daemon = Daemon::start();
    let large = "x".repeat(4097);
    for (arguments, field) in [
        (&["elect", "jobs", "--value", &large, "--", "true"][..], "value"),
        (&["elect", "", "--", "true"], "name"),
        (&["elect", "jobs", "--ttl", "61s", "--", "true"], "ttl"),
        (&["leader", ""], "name"),
        (&["observe", "a\tb"], "name"),
        (&["step-down", "jobs", "--reason", ""], "reason"),
        (&["step-down", "jobs", "--reason", "x", "--timeout", "2h"], "timeout"),
    ] {
        let output = daemon.run(&[&["--output", "json"], arguments].concat());
        assert_eq!(code(&output), 65, "{arguments:?}: {}", stderr(&output));
        let error: Value = serde_json::from_str(stderr(&output).trim()).unwrap();
        assert_eq!(error["error"]["field"], field, "{error}");
    }
    let output = daemon.run(&["elect", "jobs", "--value", &large, "--", "true"]);
    let message = stderr(&output);
    assert!(message.contains("4096") && message.contains("4097"), "{message}");
}

#[test]
fn commands_without_daemon_exit_as_unavailable() {
    let mut daemon = Daemon::start();
    daemon.stop();
    for arguments in [
        &["elect", "jobs", "--", "true"][..],
        &["leader", "jobs"],
        &["step-down", "jobs", "--reason", "x"],
    ] {
        assert_eq!(code(&daemon.run(arguments)), 69, "{arguments:?}");
    }
}

#[test]
fn values_are_printed_as_text_and_json() {
    let daemon = Daemon::start();
    for (value, text, object) in [
        ("10.0.0.7:80", "10.0.0.7:80", json!("10.0.0.7:80")),
        ("two\nlines", "base64:dHdvCmxpbmVz", json!("two\nlines")),
        ("-v", "-v", json!("-v")),
    ] {
        let mut leading =
            begin(&daemon, &["--value", value, "--label", "zone=b"], EXITS_ON_SIGTERM);
        token(&mut leading);
        let output = daemon.run(&["leader", "jobs"]);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains(&format!("value      {text}\n")), "{stdout}");
        let state = leader(&daemon);
        assert_eq!(state["leader"]["value"], object);
        assert_eq!(state["leader"]["holder"]["labels"]["zone"], "b");
        leading.signal(Signal::SIGTERM);
        leading.end();
    }
}

#[test]
fn waiting_candidate_displays_leader_on_terminal() {
    let daemon = Daemon::start();
    let mut leading = begin(&daemon, &["--value", "10.0.0.7:80"], EXITS_ON_SIGTERM);
    token(&mut leading);
    let terminal = openpty(None, None).unwrap();
    let mut command = elect(&daemon, &[], EXITS_ON_SIGTERM);
    let _waiting = Running::start(command.env("TERM", "xterm").stderr(terminal.slave));
    let mut screen = String::new();
    let mut master = BufReader::new(File::from(terminal.master));
    while !screen.contains("(10.0.0.7:80)") {
        let mut part = Vec::new();
        assert_ne!(master.read_until(b'd', &mut part).unwrap(), 0, "{screen}");
        screen.push_str(&String::from_utf8_lossy(&part));
    }
    let expected = "waiting to lead \"jobs\", led by \"leasehold elect: sh\" on ";
    assert!(screen.contains(expected), "{screen}");
}

#[test]
fn observers_see_each_leader_and_none_after_restart() {
    let daemon = Daemon::start();
    let mut observer = daemon.begin(&["observe", "jobs", "--output", "json"]);
    let mut reader = daemon.begin(&["observe", "jobs"]);
    assert!(reader.line().ends_with(" jobs: no leader"));
    let mut last = None;
    assert_eq!(next_value(&mut observer, &mut last), Value::Null);
    for value in ["one", "two"] {
        let mut leading = begin(&daemon, &["--value", value], EXITS_ON_SIGTERM);
        assert_eq!(next_value(&mut observer, &mut last), value);
        let line = reader.line();
        assert!(line.contains(" jobs: led by leasehold elect: sh on "), "{line}");
        assert!(line.contains(&format!("value {value}, ")), "{line}");
        token(&mut leading);
        leading.signal(Signal::SIGTERM);
        assert_eq!(leading.code(), Some(4));
        assert_eq!(next_value(&mut observer, &mut last), Value::Null);
        assert!(reader.line().ends_with(" jobs: no leader"));
    }
    let mut leading = begin(&daemon, &["--value", "three", "--ttl", "1s"], EXITS_ON_SIGTERM);
    assert_eq!(next_value(&mut observer, &mut last), "three");
    let low = token(&mut leading);
    let daemon = daemon.restart(&[]);
    assert_eq!(next_value(&mut observer, &mut last), Value::Null);
    assert_eq!(next_value(&mut observer, &mut last), "three");
    assert_eq!(leading.line(), "asked");
    assert!(token(&mut leading) > low);
    drop(daemon);
}

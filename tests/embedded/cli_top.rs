//! `top` against a real daemon: one frame as text and JSON, and the view on a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    process::Command,
    sync::mpsc,
    thread,
};

use leasehold_test_support::{Daemon, Running};
use nix::pty::{Winsize, openpty};
use serde_json::Value;

fn hold(daemon: &Daemon, name: &str) -> Running {
    let mut held = daemon.begin(&["lock", name, "--", "sh", "-c", "echo ready; sleep 1000"]);
    assert_eq!(held.line(), "ready");
    held
}

#[test]
fn frame_is_printed_once_to_pipes() {
    let daemon = Daemon::start();
    let _held = ["orders", "billing/run"].map(|name| hold(&daemon, name));
    for once in [&[][..], &["--once"]] {
        let output = daemon.run(&[&["top", "--interval", "100ms"], once].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !text.contains('\x1b'), "{text}");
        assert!(text.starts_with(&format!("leasehold top  {}  ", daemon.endpoint)), "{text}");
        assert!(text.contains("\nLocks    held 2 "), "{text}");
        assert!(text.contains("\nPer s    grants 0.0 "), "{text}");
        assert!(text.contains(" HELD FOR▾ "), "{text}");
        // The longest-held lock is the first one.
        let rows: Vec<_> = text.lines().rev().take(2).map(|row| row.split(' ').next()).collect();
        assert_eq!(rows, [Some("billing/run"), Some("orders")], "{text}");
    }
}

#[test]
fn json_frame_has_numbers_rates_and_locks() {
    let daemon = Daemon::start();
    let _held = ["a", "b"].map(|name| hold(&daemon, name));
    daemon.run(&["lock", "c", "--", "true"]);
    let frame = |limit| -> Value {
        let mut command = daemon.command(&["top", "--interval", "100ms", "--limit", limit]);
        serde_json::from_slice(&command.args(["-o", "json"]).output().unwrap().stdout).unwrap()
    };
    let all = frame("10");
    assert_eq!(
        (&all["held"], &all["sessions"], &all["waiting"]),
        (&2.into(), &2.into(), &0.into())
    );
    assert_eq!((&all["grants"], &all["releases"]), (&3.into(), &1.into()));
    assert_eq!((&all["losses"], &all["grants_per_s"]), (&0.into(), &0.0.into()));
    let locks = all["locks"].as_array().unwrap();
    let column = |key: &str| locks.iter().map(|lock| lock[key].clone()).collect::<Vec<_>>();
    assert_eq!(column("name"), ["a", "b", "c"]);
    assert_eq!(column("state"), ["held", "held", "free"]);
    assert_eq!(column("recent_grants"), [1, 1, 1]);
    assert!(locks[0]["holder"].as_str().unwrap().starts_with("leasehold lock: sh on "));
    assert!(locks[0]["held_for_ms"].as_u64() >= locks[1]["held_for_ms"].as_u64());
    assert_eq!(frame("1")["held"], 2, "the totals are not limited");
}

/// Terminal with a running command.
struct OnTerminal {
    keys: File,
    screen: mpsc::Receiver<Vec<u8>>,
    seen: String,
    running: std::process::Child,
}

impl OnTerminal {
    fn start(command: &mut Command) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(Some(&size), None).unwrap();
        let slave = || terminal.slave.try_clone().unwrap();
        let running = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        // No other copy of the slave may be open, or the master never reads an end.
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let keys = File::from(terminal.master);
        let mut master = keys.try_clone().unwrap();
        let (sender, screen) = mpsc::channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = master.read(&mut chunk) {
                _ = sender.send(chunk[..count].to_vec());
            }
        });
        Self { keys, screen, seen: String::new(), running }
    }

    /// Reads until a text was written.
    fn expect(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let chunk = self.screen.recv().unwrap_or_else(|_| panic!("{text:?}: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&chunk));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end. Returns the exit code and everything that was written.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.running.wait().unwrap().code();
        while let Ok(chunk) = self.screen.recv() {
            self.seen.push_str(&String::from_utf8_lossy(&chunk));
        }
        (code, self.seen)
    }
}

const LEAVE_ALTERNATE_SCREEN: &str = "\x1b[?1049l";

fn top(daemon: &Daemon) -> Command {
    let mut command = daemon.command(&["top", "--interval", "100ms"]);
    command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

#[test]
fn view_sorts_and_quits_by_key() {
    let daemon = Daemon::start();
    let _held = hold(&daemon, "orders");
    let mut view = OnTerminal::start(&mut top(&daemon));
    view.expect("orders");
    assert!(view.seen.contains("\x1b[?1049h") && view.seen.contains("\x1b[38;5;"), "{}", view.seen);
    let marks = view.seen.matches('▾').count();
    view.press("w");
    while view.seen.matches('▾').count() == marks {
        let chunk = view.screen.recv().unwrap();
        view.seen.push_str(&String::from_utf8_lossy(&chunk));
    }
    // A lock that is acquired later appears without a key.
    let _later = hold(&daemon, "invoices");
    view.expect("invoices");
    view.press("q");
    let (code, seen) = view.end();
    assert_eq!(code, Some(0));
    assert!(seen.contains(LEAVE_ALTERNATE_SCREEN), "{seen:?}");
}

#[test]
fn view_has_no_colors_if_refused_and_ends_on_ctrl_c() {
    let daemon = Daemon::start();
    let _held = hold(&daemon, "orders");
    let mut view = OnTerminal::start(top(&daemon).env("NO_COLOR", "1"));
    view.expect("orders");
    view.press("\x03");
    let (code, seen) = view.end();
    assert_eq!(code, Some(0));
    assert!(!seen.contains("\x1b[38;5;") && seen.contains(LEAVE_ALTERNATE_SCREEN), "{seen:?}");
}

#[test]
fn view_survives_restart_of_daemon() {
    let daemon = Daemon::start();
    let mut view = OnTerminal::start(&mut top(&daemon));
    view.expect("No lock has a holder or a waiter.");
    let mut daemon = daemon;
    _ = daemon.process.child.kill();
    daemon.process.end();
    view.expect("retrying");
    let daemon = daemon.restart(&[]);
    let _held = hold(&daemon, "orders");
    view.expect("orders");
    view.press("q");
    assert_eq!(view.end().0, Some(0));
}

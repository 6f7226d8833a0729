//! Tests of the command `leasehold-check` with history files.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use std::{
    fs,
    process::{Command, Output},
};

const VALID: &str = r#"{"skew":0}
{"at":0,"event":"acquire","op":1,"client":0,"daemon":0,"lock":0}
{"at":5000000,"event":"granted","op":1,"token":1024}
"#;

const VIOLATION: &str = r#"{"at":6000000,"event":"lost","client":0,"lock":0,"token":1024}
{"at":7000000,"event":"valid","client":0,"lock":0,"token":1024,"until":9000000}
"#;

fn run(content: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history");
    fs::write(&file, content).unwrap();
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_leasehold-check"))
        .args(options)
        .arg(file)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn valid_history_exits_with_zero() {
    let (code, out, err) = run(VALID, &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.lines().any(|line| line.split_whitespace().eq(["granted", "1"])), "{out}");
    assert!(out.ends_with("history: no violation\n"), "{out}");
    assert_eq!(run(VALID, &["--quiet"]), (Some(0), String::new(), String::new()));
}

#[test]
fn violation_exits_with_one() {
    let (code, out, _) = run(&format!("{VALID}{VIOLATION}"), &["--quiet"]);
    assert_eq!(code, Some(1));
    assert!(
        out.starts_with(
            "I4 at 0.007 s: token 1024 of lock 0 was lost at 0.006 s, but client 0 relied on it \
             again at 0.007 s\n"
        ),
        "{out}"
    );
    assert!(out.ends_with("history: 1 violation(s)\n"), "{out}");
}

#[test]
fn invalid_input_exits_with_two() {
    let (code, out, err) = run(&format!("{VALID}rain"), &[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("line 4 is not an entry"), "{err}");
    let (code, _, err) = run(VALID, &["--loud"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("unknown option --loud"), "{err}");
}

#[test]
fn help_lists_every_check() {
    let (code, out, _) = run(VALID, &["--help"]);
    assert_eq!(code, Some(0));
    for kind in ["I1", "I7", "L5", "L6", "E1", "E4", "Linearizable", "Malformed", "Exit code"] {
        assert!(out.contains(kind), "{kind}");
    }
}

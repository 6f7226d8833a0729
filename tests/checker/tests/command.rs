//! The command, as somebody with a file uses it.

#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::{
    fs,
    process::{Command, Output},
};

const FINE: &str = r#"{"skew":0}
{"at":0,"event":"acquire","op":1,"client":0,"daemon":0,"lock":0}
{"at":5000000,"event":"granted","op":1,"token":1024}
"#;

const WRONG: &str = r#"{"at":6000000,"event":"lost","client":0,"lock":0,"token":1024}
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
fn a_good_history() {
    let (code, out, err) = run(FINE, &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.lines().any(|line| line.split_whitespace().eq(["granted", "1"])), "{out}");
    assert!(out.ends_with("history: no violation\n"), "{out}");
    assert_eq!(run(FINE, &["--quiet"]), (Some(0), String::new(), String::new()));
}

#[test]
fn a_bad_history() {
    let (code, out, _) = run(&format!("{FINE}{WRONG}"), &["--quiet"]);
    assert_eq!(code, Some(1));
    assert!(
        out.starts_with(
            "I4 at 0.007 s: token 1024 of lock 0 was lost at 0.006 s, but client 0 counted on it \
             again at 0.007 s\n"
        ),
        "{out}"
    );
    assert!(out.ends_with("history: 1 violation(s)\n"), "{out}");
}

#[test]
fn no_history() {
    let (code, out, err) = run(&format!("{FINE}rain"), &[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("line 4 is not an entry"), "{err}");
    let (code, _, err) = run(FINE, &["--loud"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("there is no option --loud"), "{err}");
}

#[test]
fn help() {
    let (code, out, _) = run(FINE, &["--help"]);
    assert_eq!(code, Some(0));
    for kind in ["I1", "I7", "L5", "Linearizable", "Malformed", "Exit code"] {
        assert!(out.contains(kind), "{kind}");
    }
}

//! Short run: half a minute of faults, with the schedule of seed 1.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::process::Command;

#[test]
fn clients_see_no_violation_under_faults() {
    let run = Command::new(env!("CARGO_BIN_EXE_leasehold-chaos")).output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{stdout}");
    assert!(run.status.success(), "{}\n{stdout}\n{stderr}", run.status);
}

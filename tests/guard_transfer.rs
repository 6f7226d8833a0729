//! A worker is stopped while it holds the lock of a table, another takes over,
//! and the first goes on: real processes, a real daemon, a real table.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

/// The program that is run.
#[allow(dead_code, reason = "its main is not the one that is used")]
#[path = "../clients/rust/examples/transfer.rs"]
mod transfer;

use std::{env, process::Command};

use leasehold_client::{azure::Account, guard_azure::table::Table};
use nix::{
    sys::{
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use support::{Daemon, Running, azurite::Azurite, scene::Scene};

const ARGUMENTS: &str = "TRANSFER_ARGUMENTS";

/// The other tests run this as a process of its own.
#[tokio::test]
#[ignore = "is what the other tests run"]
async fn worker() {
    let Ok(arguments) = env::var(ARGUMENTS) else { return };
    transfer::run(arguments.split(' ').map(str::to_owned)).await.unwrap();
}

fn begin(daemon: &Daemon, arguments: &str) -> Running {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "worker", "--nocapture"]);
    command.env(ARGUMENTS, arguments).env("LEASEHOLD_ENDPOINT", &daemon.endpoint);
    let account = Azurite::tables_via(Azurite::shared().table_port());
    Running::start(command.env("AZURE_STORAGE_CONNECTION_STRING", account))
}

/// What the first worker said, and what is in all purses afterwards.
async fn scenario(table: &str, more: &str) -> (String, i64) {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let mut first = begin(&daemon, &format!("--stop --table {table}{more}"));
    let pid = Pid::from_raw(first.pid() as i32);
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    // The lock is the other's when the first one's session has expired.
    let mut second = begin(&daemon, &format!("--to carol --amount 30 --table {table}{more}"));
    let said = second.rest();
    assert_eq!(second.code(), Some(0), "{said}");
    assert!(said.contains("moved 30 from alice to carol"), "{said}");
    first.signal(Signal::SIGCONT);
    let said = first.rest();
    assert_eq!(first.code(), Some(0), "{said}");
    let account = Azurite::tables_via(Azurite::shared().table_port());
    let table = Table::new(&Account::from_connection_string(&account).unwrap(), table).unwrap();
    let purses = table.query(Some(transfer::BANK)).all::<transfer::Purse>().await.unwrap();
    assert_eq!(purses.len(), 3, "{purses:?}");
    (said, purses.iter().map(|purse| purse.value.amount).sum())
}

#[tokio::test]
async fn the_storage_refuses_the_one_that_was_stopped() {
    let (said, sum) = scenario("guardedpurses", "").await;
    let (_, after) = said.split_once("going on with the write").unwrap();
    let refused = after.lines().nth(1).unwrap();
    assert!(refused.starts_with("refused: table \"guardedpurses\""), "{said}");
    assert!(refused.contains("a newer holder has taken over with token"), "{said}");
    // It begins anew, with what is there now.
    assert!(after.contains("alice has 70, bob has 100"), "{said}");
    assert!(after.contains("moved 10 from alice to bob"), "{said}");
    assert_eq!(sum, 300, "{said}");
}

#[tokio::test]
async fn without_the_guard_its_write_makes_money() {
    let (said, sum) = scenario("unguardedpurses", " --unguarded").await;
    assert!(!said.contains("refused"), "{said}");
    assert_eq!(sum, 330, "{said}");
}

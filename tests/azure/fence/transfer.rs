//! A worker is stopped while it holds the lock of a table, another takes over,
//! and the first goes on: real processes, a real daemon, a real table.
/// The program that is run.
#[allow(dead_code, reason = "its main is not the one that is used")]
#[path = "../../../clients/rust-fence/examples/transfer.rs"]
mod example;

use std::{env, process::Command};

use leasehold_client::Client;
use leasehold_fence::{
    LockToken,
    azure::Account,
    table::{Error, Table, Transaction},
};
use leasehold_test_support::{Daemon, Running, azurite::Azurite};
use nix::{
    sys::{
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::scene::Scene;

const ARGUMENTS: &str = "TRANSFER_ARGUMENTS";

/// The other tests run this as a process of its own.
#[tokio::test]
#[ignore = "is what the other tests run"]
async fn worker() {
    let Ok(arguments) = env::var(ARGUMENTS) else { return };
    example::run(arguments.split(' ').map(str::to_owned)).await.unwrap();
}

fn begin(daemon: &Daemon, arguments: &str) -> Running {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "fence::transfer::worker", "--nocapture"]);
    command.env(ARGUMENTS, arguments).env("LEASEHOLD_ENDPOINT", &daemon.endpoint);
    let account = Azurite::tables_via(Azurite::shared().table_port());
    Running::start(command.env("AZURE_STORAGE_CONNECTION_STRING", account))
}

fn account() -> Account {
    let account = Azurite::tables_via(Azurite::shared().table_port());
    Account::from_connection_string(&account).unwrap()
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
    let table = Table::new(&account(), table).unwrap();
    let purses = table.query(Some(example::BANK)).all::<example::Purse>().await.unwrap();
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

/// The next test runs this by `leasehold lock`.
#[tokio::test]
#[ignore = "is what another test runs"]
async fn writer() {
    let Ok(account) = env::var("AZURE_STORAGE_CONNECTION_STRING") else { return };
    let table = Table::new(&Account::from_connection_string(&account).unwrap(), "byenv").unwrap();
    let partition = table.fenced(LockToken::from_env().unwrap()).partition("p").await.unwrap();
    let purse = example::Purse { amount: 7 };
    partition.commit(&Transaction::new().insert("by the command", &purse)).await.unwrap();
}

#[tokio::test]
async fn a_command_and_a_program_agree_on_the_lock_of_a_table() {
    let daemon = Daemon::start();
    let table = Table::new(&account(), "byenv").unwrap();
    table.create().await.unwrap();
    let client = Client::connect(&*daemon.endpoint).await.unwrap();
    let guard = client.table_lock(account().name(), "ByEnv").unwrap().acquire().await.unwrap();
    let earlier = table.fenced(&guard).partition("p").await.unwrap();
    let lock = ["lock", "--table", "byenv", "--account", "devstoreaccount1"];
    let held = daemon.run(&[&lock[..], &["--no-wait", "--", "true"]].concat());
    assert_eq!(held.status.code(), Some(75), "it is the same lock: {held:?}");
    guard.release().await.unwrap();

    let program = env::current_exe().unwrap();
    let test = ["--ignored", "--exact", "fence::transfer::writer", "--nocapture"];
    let run = [&["--", program.to_str().unwrap()], &test[..]].concat();
    let string = Azurite::tables_via(Azurite::shared().table_port());
    let mut command = daemon.command(&[&lock[..], &run].concat());
    let output = command.env("AZURE_STORAGE_CONNECTION_STRING", string).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let written = table.get::<example::Purse>("p", "by the command").await.unwrap().unwrap();
    assert_eq!(written.value.amount, 7);
    // Its token was greater: so the one of before is fenced.
    let late = Transaction::new().upsert("late", &example::Purse { amount: 1 });
    let error = earlier.commit(&late).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
}

#[test]
fn the_command_line_derives_the_names_of_locks() {
    let daemon = Daemon::start();
    let said = |arguments: &[&str]| {
        let script = ["--", "sh", "-c", "echo $LEASEHOLD_LOCK"];
        let output = daemon.run(&[arguments, &script].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap().trim().to_owned(), error)
    };
    let (code, lock, _) = said(&["lock", "--blob", "reports/2026/a b.csv", "--account", "acme"]);
    assert_eq!((code, lock.as_str()), (Some(0), "azure/acme/blob/reports/2026/a%20b.csv"));
    let (code, lock, _) = said(&["elect", "--queue", "jobs", "--account", "acme"]);
    assert_eq!((code, lock.as_str()), (Some(0), "azure/acme/queue/jobs"));
    let (code, _, error) = said(&["lock", "--share", "team"]);
    assert_eq!(code, Some(64));
    assert!(error.contains("give --account"), "{error}");
    let (code, _, error) = said(&["lock", "--container", "Reports", "--account", "acme"]);
    assert_eq!(code, Some(65));
    assert!(error.contains("small letters"), "{error}");
}

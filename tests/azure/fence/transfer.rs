//! A worker is paused while it holds the lock of a table, another acquires the
//! lock, and the first resumes: real processes, a real daemon, a real table.

/// Example program that the tests run.
#[allow(dead_code, reason = "its main function is not used")]
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

use crate::fixture::Fixture;

const ARGUMENTS: &str = "TRANSFER_ARGUMENTS";

/// Process that the other tests run.
#[tokio::test]
#[ignore = "run by other tests"]
async fn worker() {
    let Ok(arguments) = env::var(ARGUMENTS) else { return };
    example::run(arguments.split(' ').map(str::to_owned)).await.unwrap();
}

fn start_worker(daemon: &Daemon, arguments: &str) -> Running {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "fence::transfer::worker", "--nocapture"]);
    command.env(ARGUMENTS, arguments).env("LEASEHOLD_ENDPOINT", &daemon.endpoint);
    let account = Azurite::table_connection_string(Azurite::shared().table_port());
    Running::start(command.env("AZURE_STORAGE_CONNECTION_STRING", account))
}

fn account() -> Account {
    let account = Azurite::table_connection_string(Azurite::shared().table_port());
    Account::from_connection_string(&account).unwrap()
}

/// Runs both workers. Returns the output of the first one and the sum of all
/// purses.
async fn scenario(table: &str, more: &str) -> (String, i64) {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let mut first = start_worker(&daemon, &format!("--stop --table {table}{more}"));
    let pid = Pid::from_raw(first.pid() as i32);
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    // The second worker is granted the lock when the first session expires.
    let mut second =
        start_worker(&daemon, &format!("--to carol --amount 30 --table {table}{more}"));
    let output = second.rest();
    assert_eq!(second.code(), Some(0), "{output}");
    assert!(output.contains("moved 30 from alice to carol"), "{output}");
    first.signal(Signal::SIGCONT);
    let output = first.rest();
    assert_eq!(first.code(), Some(0), "{output}");
    let table = Table::new(&account(), table).unwrap();
    let purses = table.query(Some(example::BANK)).all::<example::Purse>().await.unwrap();
    assert_eq!(purses.len(), 3, "{purses:?}");
    (output, purses.iter().map(|purse| purse.value.amount).sum())
}

#[tokio::test]
async fn storage_refuses_write_of_paused_worker() {
    let (output, sum) = scenario("fencedpurses", "").await;
    let (_, after) = output.split_once("resuming with the write").unwrap();
    let refused = after.lines().nth(1).unwrap();
    assert!(refused.starts_with("refused: table \"fencedpurses\""), "{output}");
    assert!(refused.contains("a newer holder has taken over with token"), "{output}");
    // It starts over with the current data.
    assert!(after.contains("alice has 70, bob has 100"), "{output}");
    assert!(after.contains("moved 10 from alice to bob"), "{output}");
    assert_eq!(sum, 300, "{output}");
}

#[tokio::test]
async fn unfenced_write_of_paused_worker_creates_money() {
    let (output, sum) = scenario("unfencedpurses", " --unfenced").await;
    assert!(!output.contains("refused"), "{output}");
    assert_eq!(sum, 330, "{output}");
}

/// Process that the next test runs under `leasehold lock`.
#[tokio::test]
#[ignore = "run by another test"]
async fn writer() {
    let Ok(account) = env::var("AZURE_STORAGE_CONNECTION_STRING") else { return };
    let table = Table::new(&Account::from_connection_string(&account).unwrap(), "byenv").unwrap();
    let partition = table.fenced(LockToken::from_env().unwrap()).partition("p").await.unwrap();
    let purse = example::Purse { amount: 7 };
    partition.commit(&Transaction::new().insert("by the command", &purse)).await.unwrap();
}

#[tokio::test]
async fn command_and_program_share_table_lock() {
    let daemon = Daemon::start();
    let table = Table::new(&account(), "byenv").unwrap();
    table.create().await.unwrap();
    let client = Client::connect(&*daemon.endpoint).await.unwrap();
    let guard = client.table_lock(account().name(), "ByEnv").unwrap().acquire().await.unwrap();
    let earlier = table.fenced(&guard).partition("p").await.unwrap();
    let lock = ["lock", "--table", "byenv", "--account", "devstoreaccount1"];
    let held = daemon.run(&[&lock[..], &["--no-wait", "--", "true"]].concat());
    assert_eq!(held.status.code(), Some(75), "not the same lock: {held:?}");
    guard.release().await.unwrap();

    let program = env::current_exe().unwrap();
    let test = ["--ignored", "--exact", "fence::transfer::writer", "--nocapture"];
    let run = [&["--", program.to_str().unwrap()], &test[..]].concat();
    let string = Azurite::table_connection_string(Azurite::shared().table_port());
    let mut command = daemon.command(&[&lock[..], &run].concat());
    let output = command.env("AZURE_STORAGE_CONNECTION_STRING", string).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let written = table.get::<example::Purse>("p", "by the command").await.unwrap().unwrap();
    assert_eq!(written.value.amount, 7);
    // The command had a higher token, so the earlier holder is fenced.
    let late = Transaction::new().upsert("late", &example::Purse { amount: 1 });
    let error = earlier.commit(&late).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
}

#[test]
fn cli_derives_lock_names() {
    let daemon = Daemon::start();
    let output = |arguments: &[&str]| {
        let script = ["--", "sh", "-c", "echo $LEASEHOLD_LOCK"];
        let output = daemon.run(&[arguments, &script].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap().trim().to_owned(), error)
    };
    let (code, lock, _) = output(&["lock", "--blob", "reports/2026/a b.csv", "--account", "acme"]);
    assert_eq!((code, lock.as_str()), (Some(0), "azure/acme/blob/reports/2026/a%20b.csv"));
    let (code, lock, _) = output(&["elect", "--queue", "jobs", "--account", "acme"]);
    assert_eq!((code, lock.as_str()), (Some(0), "azure/acme/queue/jobs"));
    let (code, _, error) = output(&["lock", "--share", "team"]);
    assert_eq!(code, Some(64));
    assert!(error.contains("use --account"), "{error}");
    let (code, _, error) = output(&["lock", "--container", "Reports", "--account", "acme"]);
    assert_eq!(code, Some(65));
    assert!(error.contains("lowercase letters"), "{error}");
}

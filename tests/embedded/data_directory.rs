//! The embedded store with real processes: a data directory that is moved or
//! deleted, tokens across restarts, and the output of `doctor` and `get`.

use std::{fs, path::Path, sync::Arc, time::Duration};

use leasehold_client::{Client, Error};
use leasehold_test_support::{Daemon, program, until};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

async fn client(daemon: &Daemon, ttl: Duration) -> Client {
    Client::builder(&daemon.endpoint).ttl(ttl).connect().await.unwrap()
}

/// Starts a daemon on `data` in this directory.
fn start(dir: &Arc<TempDir>) -> Daemon {
    Daemon::start_in(Arc::clone(dir), "127.0.0.1:0", &[])
}

/// Grants a lock once, and returns its token.
async fn grant(daemon: &Daemon) -> u64 {
    let client = client(daemon, Duration::from_secs(10)).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    client.close().await;
    token.get()
}

/// Daemon A loses its directory, and daemon B starts at the same path. A must
/// not touch B's record of its holder.
async fn second_daemon_keeps_its_record(remove: impl Fn(&Path)) {
    let dir = Arc::new(TempDir::new().unwrap());
    let mut first = start(&dir);
    remove(&dir.path().join("data"));
    let second = start(&dir);
    let holder = client(&second, Duration::from_secs(30)).await;
    let held = holder.lock("orders").acquire().await.unwrap();

    let stopped = first.stop();

    // B is killed with SIGKILL while its holder works, and restarted.
    let second = second.restart(&[]);
    let next = client(&second, Duration::from_secs(10)).await;
    let refused = next.lock("orders").no_wait().acquire().await;
    assert!(held.is_valid());
    let Err(Error::Unavailable { message, .. }) = &refused else {
        panic!("two holders: {:?} and {refused:?}", held.token())
    };
    assert!(message.contains("recovering from an unclean shutdown"), "{message}");
    assert!(!stopped.success(), "A can't record its clean shutdown");
}

#[tokio::test]
async fn moved_directory_is_not_written_by_path() {
    let moved = TempDir::new().unwrap();
    second_daemon_keeps_its_record(|data| {
        fs::rename(data, moved.path().join("data")).unwrap();
    })
    .await;
    let state = fs::read_to_string(moved.path().join("data/state")).unwrap();
    assert!(state.contains("stopped-cleanly false"), "{state}");
}

#[tokio::test]
async fn deleted_directory_is_not_written_by_path() {
    second_daemon_keeps_its_record(|data| fs::remove_dir_all(data).unwrap()).await;
}

#[tokio::test]
async fn first_daemon_grants_nothing_once_second_has_same_path() {
    let dir = Arc::new(TempDir::new().unwrap());
    let first = start(&dir);
    let client_of_first = client(&first, Duration::from_secs(10)).await;
    fs::rename(dir.path().join("data"), dir.path().join("moved")).unwrap();
    let second = start(&dir);
    let holder = client(&second, Duration::from_secs(10)).await;
    let held = holder.lock("orders").acquire().await.unwrap();
    let refused = client_of_first.lock("orders").no_wait().acquire().await;
    let Err(Error::Unavailable { message, .. }) = &refused else {
        panic!("two holders: {:?} and {refused:?}", held.token())
    };
    assert!(message.contains("was moved, deleted or replaced"), "{message}");
}

#[tokio::test]
async fn health_reports_replaced_directory_without_requests() {
    let dir = Arc::new(TempDir::new().unwrap());
    let daemon = start(&dir);
    fs::rename(dir.path().join("data"), dir.path().join("moved")).unwrap();
    let channel = Channel::from_shared(daemon.endpoint.clone()).unwrap().connect().await.unwrap();
    until(async || {
        let request = HealthCheckRequest { service: String::new() };
        let answer = HealthClient::new(channel.clone()).check(request).await.unwrap();
        (answer.into_inner().status() == ServingStatus::NotServing).then_some(())
    })
    .await;
}

#[tokio::test]
async fn tokens_increase_after_directory_was_deleted() {
    let dir = Arc::new(TempDir::new().unwrap());
    let mut last = 0;
    for round in 0..6 {
        let mut daemon = start(&dir);
        let token = grant(&daemon).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        assert!(daemon.stop().success());
        fs::remove_dir_all(dir.path().join("data")).unwrap();
    }
}

#[tokio::test]
async fn tokens_increase_across_quick_restarts_and_deletion() {
    let dir = Arc::new(TempDir::new().unwrap());
    let mut last = 0;
    for restart in 0..9 {
        if restart == 8 {
            fs::remove_dir_all(dir.path().join("data")).unwrap();
        }
        let mut daemon = start(&dir);
        let token = grant(&daemon).await;
        assert!(token > last, "restart {restart}: {token} after {last}");
        last = token;
        assert!(daemon.stop().success());
    }
}

/// Runs `serve` and `doctor` on a directory where both fail, and returns their output.
fn output_for_unusable_directory(dir: &Path, data: &Path) -> String {
    let mut serve = program();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).current_dir(dir);
    let served = serve.output().unwrap();
    assert!(!served.status.success());
    let doctor = program().arg("doctor").arg("--data-dir").arg(data).output().unwrap();
    assert!(!doctor.status.success(), "doctor reports no problem of {}", data.display());
    let served = String::from_utf8(served.stderr).unwrap();
    assert!(!served.contains("valid UTF-8"), "{served}");
    served + &String::from_utf8(doctor.stdout).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn doctor_fails_where_serve_fails() {
    let dir = TempDir::new().unwrap();
    let output = output_for_unusable_directory(dir.path(), Path::new("/proc/x"));
    assert!(output.contains("can't create /proc/x"), "{output}");
}

#[test]
fn garbage_in_lock_file_is_explained() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("other");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("lock"), b"\xff\xfe\x00\x80garbage").unwrap();
    let output = output_for_unusable_directory(dir.path(), &data);
    assert_eq!(output.matches("lock is corrupt").count(), 2, "{output}");
    assert_eq!(output.matches("delete this file and restart").count(), 2, "{output}");
}

#[tokio::test]
async fn get_prints_last_break() {
    let daemon = Daemon::start();
    let holder = client(&daemon, Duration::from_secs(10)).await;
    let held = holder.lock("orders").acquire().await.unwrap();
    assert!(daemon.run(&["break", "orders", "--reason", "worker stuck"]).status.success());
    held.lost().await;
    drop(held);
    let lock = daemon.run(&["get", "orders", "--verbose", "--output", "json"]);
    let lock: serde_json::Value = serde_json::from_slice(&lock.stdout).unwrap();
    assert_eq!(lock["last_break"]["reason"], "worker stuck", "{lock}");
    assert!(lock["last_break"]["by"].is_string(), "{lock}");
}

//! The daemon as a process: start, shutdown, crash and restart.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use leasehold_client::{Client, Error, Guard, Reason};
use leasehold_test_support::{Daemon, leasehold, serve, until};
use leasehold_time::Moment;
use nix::{sys::signal::Signal, unistd::geteuid};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

async fn client(daemon: &Daemon, ttl: Duration) -> Client {
    Client::builder(&daemon.endpoint).ttl(ttl).connect().await.unwrap()
}

async fn channel(daemon: &Daemon) -> Channel {
    Channel::from_shared(daemon.endpoint.clone()).unwrap().connect().await.unwrap()
}

async fn health(daemon: &Daemon) -> ServingStatus {
    let mut client = HealthClient::new(channel(daemon).await);
    let request = HealthCheckRequest { service: String::new() };
    client.check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn no_grant_after_crash_until_old_grants_expire() {
    let daemon = Daemon::start();
    let old: Guard =
        client(&daemon, Duration::from_secs(2)).await.lock("a").acquire().await.unwrap();
    let (old_token, deadline) = (old.token(), old.deadline());
    // SIGKILL, then an immediate restart.
    let daemon = daemon.restart(&[]);
    let next = client(&daemon, Duration::from_secs(10)).await;
    let refused = next.lock("b").no_wait().acquire().await.unwrap_err();
    let Error::Unavailable { message, retry_after } = &refused else { panic!("{refused:?}") };
    assert!(message.contains("recovering from an unclean shutdown"), "{message}");
    assert!(retry_after.is_some());
    assert_eq!(health(&daemon).await, ServingStatus::NotServing);

    let waiter = tokio::spawn({
        let next = next.clone();
        async move { next.lock("a").acquire().await.unwrap() }
    });
    // The list includes a waiter whose lock has no lease yet.
    until(async || {
        let listed = next.list("").next().await.transpose().unwrap();
        listed.filter(|lock| lock.name == "a" && lock.waiting == 1 && !lock.held)
    })
    .await;
    let new = waiter.await.unwrap();
    assert!(deadline.has_passed(), "granted before the old grant expired");
    assert!(!old.is_valid());
    assert!(new.token() > old_token);
    until(async || (health(&daemon).await == ServingStatus::Serving).then_some(())).await;
}

#[tokio::test]
async fn daemon_grants_immediately_after_clean_shutdown() {
    let mut daemon = Daemon::start();
    let first = client(&daemon, Duration::from_secs(60)).await;
    let guard = first.lock("a").acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(daemon.stop().success());
    let daemon = daemon.restart(&[]);
    assert_eq!(health(&daemon).await, ServingStatus::Serving);
    let next = client(&daemon, Duration::from_secs(60)).await;
    let guard = next.lock("a").no_wait().acquire().await.unwrap();
    assert!(guard.token() > token);
}

#[tokio::test]
async fn shutdown_warns_holders_and_waits_for_deadlines() {
    let mut daemon = Daemon::start_with(&["--drain-timeout", "200ms"]);
    let holder = client(&daemon, Duration::from_secs(2)).await;
    let guard = holder.lock("a").acquire().await.unwrap();
    let waiter = client(&daemon, Duration::from_secs(2)).await;
    daemon.process.signal(Signal::SIGTERM);
    let risk = guard.at_risk().await;
    assert_eq!(risk.reason, Reason::ShuttingDown);
    let refused = waiter.lock("b").no_wait().acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    let loss = guard.lost().await;
    assert_eq!(loss.reason, Reason::ShuttingDown);
    let deadline = guard.deadline();
    // The holder does not release, so the daemon waits until the deadline.
    let status = tokio::task::spawn_blocking(move || (daemon.process.end(), daemon)).await.unwrap();
    assert!(status.0.success());
    assert!(deadline.has_passed());
    let daemon = status.1.restart(&[]);
    assert_eq!(health(&daemon).await, ServingStatus::Serving, "the shutdown was clean");
}

fn failed(output: &Output) -> String {
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "the daemon listened");
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(message.trim().lines().count(), 1, "more than one line: {message}");
    message
}

/// Error message of `serve`, which can't start in this directory.
fn refusal(dir: &Path) -> String {
    failed(&serve(dir, "127.0.0.1:0", &[]).output().unwrap())
}

#[test]
fn directory_in_use_is_refused() {
    let daemon = Daemon::start();
    let message = refusal(daemon.dir.path());
    assert!(message.contains("in use by another daemon"), "{message}");
    assert!(message.contains(&format!("pid {}", daemon.process.pid())), "{message}");
}

#[test]
fn corrupt_directory_is_refused_and_not_modified() {
    let mut daemon = Daemon::start();
    daemon.stop();
    let state = daemon.dir.path().join("data/state");
    for damage in [&b"garbage"[..], b"", &[0; 5000]] {
        fs::write(&state, damage).unwrap();
        let message = refusal(daemon.dir.path());
        assert!(message.contains("corrupt") && message.contains("state"), "{message}");
        assert_eq!(fs::read(&state).unwrap(), damage);
    }
    fs::remove_file(&state).unwrap();
    let message = refusal(daemon.dir.path());
    assert!(message.contains("missing"), "{message}");
    assert!(!state.exists(), "a new state file was created");
}

#[cfg(target_os = "linux")]
#[test]
fn full_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    symlink("/dev/full", dir.path().join("data/state.new")).unwrap();
    let message = refusal(dir.path());
    assert!(message.contains("No space left"), "{message}");
}

#[test]
fn read_only_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = serve(dir.path(), "127.0.0.1:0", &[]);
    if geteuid().is_root() {
        // Root ignores permissions. Run a copy of the program, in a directory that
        // every user can reach, as another user.
        let program = dir.path().join("leasehold");
        fs::copy(leasehold(), &program).unwrap();
        chown(&program, Some(65534), None).unwrap();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = std::process::Command::new(program);
        command.args(arguments).uid(65534).gid(65534).current_dir("/");
    }
    let message = failed(&command.stdin(Stdio::null()).output().unwrap());
    assert!(message.contains("Permission denied") && message.contains("data"), "{message}");
}

#[test]
fn address_in_use_is_refused() {
    let daemon = Daemon::start();
    let dir = TempDir::new().unwrap();
    let message = failed(&serve(dir.path(), daemon.address(), &[]).output().unwrap());
    assert!(message.contains("can't listen on") && message.contains(daemon.address()), "{message}");
}

#[tokio::test]
async fn unix_socket_is_private_exclusive_and_replaced_after_crash() {
    let dir = Arc::new(TempDir::new().unwrap());
    let path = dir.path().join("socket");
    let listen = format!("unix:{}", path.display());
    let daemon = Daemon::start_in(Arc::clone(&dir), &listen, &[]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(client(&daemon, Duration::from_secs(1)).await.lock("a").acquire().await.unwrap());

    let other = TempDir::new().unwrap();
    let message = failed(&serve(other.path(), &listen, &[]).output().unwrap());
    assert!(message.contains("another daemon listens on this path"), "{message}");

    // A socket left by a crash does not prevent a start.
    let mut daemon = daemon.restart(&["--socket-mode", "0660"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    assert!(daemon.stop().success());
    assert!(!path.exists(), "a clean shutdown removes the socket");
    fs::write(&path, "precious").unwrap();
    let message = failed(&serve(other.path(), &listen, &[]).output().unwrap());
    assert!(message.contains("not a socket"), "{message}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn reflection_v1_requires_option() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let request = || ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let daemon = Daemon::start_with(&["--reflection"]);
    let mut client = ServerReflectionClient::new(channel(&daemon).await);
    let stream = tokio_stream::iter([request()]);
    let mut answers = client.server_reflection_info(stream).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"leasehold.v1.SessionService".to_owned()), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");

    let daemon = Daemon::start();
    let mut client = ServerReflectionClient::new(channel(&daemon).await);
    let stream = tokio_stream::iter([request()]);
    let status = client.server_reflection_info(stream).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn reflection_v1alpha_requires_option() {
    use tonic_reflection::pb::v1alpha::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let request = || ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(
            "leasehold.v1.SessionService".to_owned(),
        )),
    };
    let daemon = Daemon::start_with(&["--reflection"]);
    let mut client = ServerReflectionClient::new(channel(&daemon).await);
    let stream = tokio_stream::iter([request()]);
    let mut answers = client.server_reflection_info(stream).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::FileDescriptorResponse(files) = answer else { panic!("{answer:?}") };
    assert!(!files.file_descriptor_proto.is_empty());

    let daemon = Daemon::start();
    let mut client = ServerReflectionClient::new(channel(&daemon).await);
    let stream = tokio_stream::iter([request()]);
    let status = client.server_reflection_info(stream).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn full_disk_stops_new_grants_and_keeps_existing_ones() {
    let daemon = Daemon::start();
    let holder = client(&daemon, Duration::from_secs(2)).await;
    let guard = holder.lock("a").acquire().await.unwrap();
    let new = daemon.dir.path().join("data/state.new");
    symlink("/dev/full", &new).unwrap();
    // The store must record a TTL that is longer than all earlier ones.
    let other = client(&daemon, Duration::from_secs(5)).await;
    let refused = other.lock("b").no_wait().acquire().await.unwrap_err();
    let Error::Unavailable { message, .. } = &refused else { panic!("{refused:?}") };
    assert!(message.contains("No space left"), "{message}");
    let refused = holder.lock("b").no_wait().acquire().await.unwrap_err();
    assert!(refused.to_string().contains("No space left"), "{refused}");
    until(async || (health(&daemon).await == ServingStatus::NotServing).then_some(())).await;
    let before = Moment::now();
    while Moment::now().since(before) < Duration::from_secs(3) {
        assert!(guard.is_valid(), "the grant ended");
        leasehold_runtime::sleep(Duration::from_millis(100)).await;
    }
    fs::remove_file(&new).unwrap();
    drop(other.lock("b").acquire().await.unwrap());
}

//! The daemon as a process: how it starts, stops, crashes and comes back.

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
async fn after_a_crash_nothing_is_granted_while_an_old_holder_may_believe_in_its_grant() {
    let daemon = Daemon::start();
    let old: Guard =
        client(&daemon, Duration::from_secs(2)).await.lock("a").acquire().await.unwrap();
    let (old_token, deadline) = (old.token(), old.deadline());
    // Killed with -9, and started again at once.
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
    // Who looks sees it, though the store has no lease yet.
    until(async || {
        let listed = next.list("").next().await.transpose().unwrap();
        listed.filter(|lock| lock.name == "a" && lock.waiting == 1 && !lock.held)
    })
    .await;
    let new = waiter.await.unwrap();
    assert!(deadline.has_passed(), "granted while the old holder could believe in its grant");
    assert!(!old.is_valid());
    assert!(new.token() > old_token);
    until(async || (health(&daemon).await == ServingStatus::Serving).then_some(())).await;
}

#[tokio::test]
async fn after_a_clean_stop_the_next_start_grants_at_once() {
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
async fn a_stop_tells_holders_waits_for_the_deaf_and_is_clean() {
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
    // The holder does not let go: the daemon waits out what it was promised.
    let status = tokio::task::spawn_blocking(move || (daemon.process.end(), daemon)).await.unwrap();
    assert!(status.0.success());
    assert!(deadline.has_passed());
    let daemon = status.1.restart(&[]);
    assert_eq!(health(&daemon).await, ServingStatus::Serving, "it was clean");
}

fn failed(output: &Output) -> String {
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "it never listened");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.trim().lines().count(), 1, "one clear message: {said}");
    said
}

/// What `serve` says when it can't start in this directory.
fn refusal(dir: &Path) -> String {
    failed(&serve(dir, "127.0.0.1:0", &[]).output().unwrap())
}

#[test]
fn a_directory_that_is_in_use_is_refused() {
    let daemon = Daemon::start();
    let said = refusal(daemon.dir.path());
    assert!(said.contains("in use by another daemon"), "{said}");
    assert!(said.contains(&format!("pid {}", daemon.process.pid())), "{said}");
}

#[test]
fn a_directory_that_is_damaged_is_refused_and_left_alone() {
    let mut daemon = Daemon::start();
    daemon.stop();
    let state = daemon.dir.path().join("data/state");
    for damage in [&b"garbage"[..], b"", &[0; 5000]] {
        fs::write(&state, damage).unwrap();
        let said = refusal(daemon.dir.path());
        assert!(said.contains("corrupt") && said.contains("state"), "{said}");
        assert_eq!(fs::read(&state).unwrap(), damage);
    }
    fs::remove_file(&state).unwrap();
    let said = refusal(daemon.dir.path());
    assert!(said.contains("missing"), "{said}");
    assert!(!state.exists(), "no fresh start");
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_is_full_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    symlink("/dev/full", dir.path().join("data/state.new")).unwrap();
    let said = refusal(dir.path());
    assert!(said.contains("No space left"), "{said}");
}

#[test]
fn a_directory_that_is_read_only_is_refused() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = serve(dir.path(), "127.0.0.1:0", &[]);
    if geteuid().is_root() {
        // To root nothing is read-only: be somebody else, who may run the
        // program from where it is reached.
        let program = dir.path().join("leasehold");
        fs::copy(leasehold(), &program).unwrap();
        chown(&program, Some(65534), None).unwrap();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = std::process::Command::new(program);
        command.args(arguments).uid(65534).gid(65534).current_dir("/");
    }
    let said = failed(&command.stdin(Stdio::null()).output().unwrap());
    assert!(said.contains("Permission denied") && said.contains("data"), "{said}");
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let daemon = Daemon::start();
    let dir = TempDir::new().unwrap();
    let said = failed(&serve(dir.path(), daemon.address(), &[]).output().unwrap());
    assert!(said.contains("can't listen on") && said.contains(daemon.address()), "{said}");
}

#[tokio::test]
async fn a_socket_is_private_survives_a_crash_and_is_taken_by_one_daemon_only() {
    let dir = Arc::new(TempDir::new().unwrap());
    let path = dir.path().join("socket");
    let listen = format!("unix:{}", path.display());
    let daemon = Daemon::start_in(Arc::clone(&dir), &listen, &[]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(client(&daemon, Duration::from_secs(1)).await.lock("a").acquire().await.unwrap());

    let other = TempDir::new().unwrap();
    let said = failed(&serve(other.path(), &listen, &[]).output().unwrap());
    assert!(said.contains("another daemon listens on this path"), "{said}");

    // After a crash the socket is left over, and no hindrance.
    let mut daemon = daemon.restart(&["--socket-mode", "0660"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    assert!(daemon.stop().success());
    assert!(!path.exists(), "a clean stop leaves nothing behind");
    fs::write(&path, "precious").unwrap();
    let said = failed(&serve(other.path(), &listen, &[]).output().unwrap());
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn reflection_is_there_when_it_is_asked_for() {
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
async fn reflection_v1alpha_requires_the_option() {
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
async fn a_disk_that_fills_up_stops_granting_and_says_so_and_holders_keep_what_they_have() {
    let daemon = Daemon::start();
    let holder = client(&daemon, Duration::from_secs(2)).await;
    let guard = holder.lock("a").acquire().await.unwrap();
    let new = daemon.dir.path().join("data/state.new");
    symlink("/dev/full", &new).unwrap();
    // A longer ttl than any before must be recorded first.
    let other = client(&daemon, Duration::from_secs(5)).await;
    let refused = other.lock("b").no_wait().acquire().await.unwrap_err();
    let Error::Unavailable { message, .. } = &refused else { panic!("{refused:?}") };
    assert!(message.contains("No space left"), "{message}");
    let refused = holder.lock("b").no_wait().acquire().await.unwrap_err();
    assert!(refused.to_string().contains("No space left"), "{refused}");
    until(async || (health(&daemon).await == ServingStatus::NotServing).then_some(())).await;
    let before = Moment::now();
    while Moment::now().since(before) < Duration::from_secs(3) {
        assert!(guard.is_valid(), "who holds keeps");
        leasehold_runtime::sleep(Duration::from_millis(100)).await;
    }
    fs::remove_file(&new).unwrap();
    drop(other.lock("b").acquire().await.unwrap());
}

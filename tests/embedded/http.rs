//! The HTTP endpoint of a real daemon, over real sockets.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use leasehold_client::Reason;
use leasehold_test_support::{
    Daemon,
    http_endpoint::{HttpDaemon, LONG, Reply, campaign, head, send_request},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};

/// Waits until the daemon closes a connection, and checks that nothing else arrives.
async fn closes(mut connection: TcpStream) {
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

#[test]
fn http_endpoint_is_off_by_default() {
    let mut daemon = Daemon::start();
    assert!(daemon.stop().success());
    assert_eq!(daemon.process.rest(), "", "one listener, for gRPC");
}

#[tokio::test]
async fn election_path_returns_leader() {
    let served = HttpDaemon::start(&[]);
    let reply = served.get("/v1/elections/default/scheduler").await;
    assert_eq!(reply.status, 200);
    let no_leader = json!({
        "election": { "namespace": "default", "name": "scheduler" },
        "leader": null,
        "candidates": 0,
    });
    assert_eq!(reply.json(), no_leader);

    let client = served.client(LONG).await;
    let leadership = campaign(&client, "http://10.0.0.7/\n").await;
    let other = client.new_session();
    let waiting = tokio::spawn(async move { campaign(&other, "next").await });
    let state = until(async || {
        let state = served.get("/v1/elections/default/scheduler").await.json();
        (state["candidates"] == 1).then_some(state)
    })
    .await;
    let leader = &state["leader"];
    assert_eq!(leader["value"], "http://10.0.0.7/\n");
    assert_eq!(leader["value_base64"], "aHR0cDovLzEwLjAuMC43Lwo=");
    assert_eq!(leader["token"], leadership.token().get());
    assert!(leader["leading_for_ms"].is_u64(), "{leader}");
    assert_eq!(leader["local"], true);
    assert_eq!(leader["session_id"], json!(client.session().unwrap().id));
    assert_eq!(leader["ending"], false);
    assert_eq!(leader["daemon"], Value::Null);
    assert_eq!(leader["holder"]["client"], "test 1");
    assert_eq!(leader["holder"]["pid"], std::process::id());
    for key in ["host", "labels"] {
        assert!(!leader["holder"][key].is_null(), "{key}: {leader}");
    }
    assert_eq!(leader["holder"]["pod"], Value::Null);

    leadership.proclaim([0xff, 0x00]).await.unwrap();
    let leader = served.leader().await;
    assert_eq!((&leader["value"], &leader["value_base64"]), (&Value::Null, &json!("/wA=")));
    assert_eq!(leader["token"], leadership.token().get());

    let token = leadership.token();
    leadership.resign().await.unwrap();
    let next = waiting.await.unwrap();
    assert!(next.token() > token);
    let leader = served.leader().await;
    assert_eq!((&leader["value"], &leader["token"]), (&json!("next"), &json!(next.token().get())));
    next.resign().await.unwrap();
    assert_eq!(served.get("/v1/elections/default/scheduler").await.json(), no_leader);
}

#[tokio::test]
async fn self_probe_succeeds_while_local_client_leads() {
    let served = HttpDaemon::start(&[]);
    let reply = served.check_local_leader().await;
    assert_eq!((reply.status, &reply.json()["leader"]), (503, &Value::Null));
    let leadership = campaign(&served.client(LONG).await, "").await;
    let reply = served.check_local_leader().await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["leader"]["token"], leadership.token().get());
    // The same name in another namespace is another election.
    assert_eq!(served.get("/v1/elections/other/scheduler?self=1").await.status, 503);
    leadership.resign().await.unwrap();
    assert_eq!(served.check_local_leader().await.status, 503);
}

#[tokio::test]
async fn lost_leader_is_returned_but_fails_self_probe() {
    let served = HttpDaemon::start(&[]);
    let arguments = ["lock", "scheduler", "--ttl", "60s", "--", "sh", "-c", "echo led; sleep 60"];
    let mut holder = served.daemon.begin(&arguments);
    assert_eq!(holder.line(), "led");
    assert_eq!(served.check_local_leader().await.status, 200);
    // A stopped holder does not receive the loss, so it does not release.
    holder.signal(Signal::SIGSTOP);
    assert!(served.daemon.run(&["break", "scheduler", "--reason", "test"]).status.success());
    let reply = served.check_local_leader().await;
    assert_eq!(reply.status, 503);
    let leader = &reply.json()["leader"];
    assert_eq!((&leader["local"], &leader["ending"]), (&json!(true), &json!(true)));
    assert_eq!(leader["value"], "", "a lock that was acquired without a campaign has no value");
    holder.signal(Signal::SIGCONT);
    holder.signal(Signal::SIGTERM);
    holder.end();
}

#[tokio::test]
async fn names_are_percent_decoded_and_checked() {
    let served = HttpDaemon::start(&[]);
    let client = served.client(LONG).await;
    let leadership = client.election("team/鎖 1").campaign("x").await.unwrap();
    for name in ["team/%E9%8E%96%201", "team%2F%e9%8e%96%201"] {
        let state = served.get(&format!("/v1/elections/default/{name}")).await.json();
        assert_eq!(state["election"]["name"], "team/鎖 1");
        assert_eq!(state["leader"]["token"], leadership.token().get());
    }
    for (target, field) in [
        ("default/", "name"),
        ("default/a%07", "name"),
        ("default/%ff", "name"),
        ("default/50%", "name"),
        ("NOT-A-LABEL/a", "namespace"),
        ("default/a?self=maybe", "self"),
        ("default/a?slef=1", "query"),
    ] {
        let reply = served.get(&format!("/v1/elections/{target}")).await;
        assert_eq!((reply.status, reply.reason().as_str()), (400, "INVALID"), "{target}");
        assert_eq!(reply.json()["error"]["field"], field, "{target}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let served = HttpDaemon::start(&[]);
    for target in ["/", "/v1", "/v1/elections/default", "/healthz/x", "*"] {
        let reply = served.get(target).await;
        assert_eq!((reply.status, reply.reason().as_str()), (404, "NOT_FOUND"), "{target}");
    }
    for method in ["POST", "DELETE", "OPTIONS", "BREW"] {
        let reply = served.send(method, "/v1/elections/default/a").await;
        assert_eq!((reply.status, reply.reason().as_str()), (405, "METHOD_NOT_ALLOWED"));
        assert_eq!(reply.header("allow"), Some("GET, HEAD"));
    }
    for target in ["/healthz", "/readyz", "/v1/elections/default/a?self=1", "/v2"] {
        let (get, head) = (served.get(target).await, served.send("HEAD", target).await);
        assert_eq!((head.status, head.body.as_str()), (get.status, ""), "{target}");
        assert_eq!(head.header("content-length"), Some(&*get.body.len().to_string()), "{target}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{target}");
    }
    // The daemon ignores a body, even with a large content length.
    let request = head("GET", "/healthz", "Content-Length: 1000000000000\r\n");
    assert_eq!(send_request(served.connect().await, &request).await.status, 200);
}

#[tokio::test]
async fn connection_serves_one_request() {
    let served = HttpDaemon::start(&[]);
    let mut connection = served.connect().await;
    let twice = head("GET", "/healthz", "").repeat(2);
    connection.write_all(twice.as_bytes()).await.unwrap();
    let mut text = String::new();
    // The connection may end with a reset, because the second request is unread.
    _ = connection.read_to_string(&mut text).await;
    assert_eq!(text.matches("HTTP/1.1 200").count(), 1, "{text}");
    assert_eq!(Reply::parse(&text).header("connection"), Some("close"), "{text}");
}

#[tokio::test]
async fn oversized_requests_are_refused() {
    let served = HttpDaemon::start(&[]);
    let large = format!("X-Large: {}\r\n", "x".repeat(20_000));
    let many = (0..80).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    for headers in [large, many] {
        let reply = send_request(served.connect().await, &head("GET", "/healthz", &headers)).await;
        assert_eq!(reply.status, 431);
    }
    let reply = served.get(&format!("/{}", "x".repeat(20_000))).await;
    assert!(matches!(reply.status, 414 | 431), "{reply:?}");
    assert_eq!(send_request(served.connect().await, "\u{16}\u{3}\r\n\r\n").await.status, 400);
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn idle_connections_make_room_for_new_clients() {
    let served = HttpDaemon::start(&[]);
    let mut idle = Vec::new();
    for number in 0..leasehold::http::MAX_CONNECTIONS {
        let mut connection = served.connect().await;
        // Half of the clients send an incomplete request.
        if number % 2 == 0 {
            connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.unwrap();
        }
        idle.push(connection);
    }
    assert_eq!(served.get("/healthz").await.status, 200);
    let idle: Vec<_> = idle.into_iter().map(|connection| connection.into_std().unwrap()).collect();
    let has_ended = |connection: &std::net::TcpStream| connection.peek(&mut [0]).is_ok();
    assert!(idle.iter().any(has_ended), "no idle connection was closed");
    for connection in idle {
        closes(TcpStream::from_std(connection).unwrap()).await;
    }
}

#[tokio::test]
async fn daemon_is_healthy_but_not_ready_after_crash() {
    let served = HttpDaemon::start(&[]);
    let guard = served.client(Duration::from_secs(2)).await.lock("a").acquire().await.unwrap();
    assert_eq!(served.get("/readyz").await.json(), json!({ "status": "ready" }));
    let served = served.restart();
    let reply = served.get("/readyz").await;
    assert_eq!((reply.status, reply.reason().as_str()), (503, "RECOVERING"));
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{reply:?}");
    assert_eq!(served.get("/healthz").await.json(), json!({ "status": "ok" }));
    until(async || (served.get("/readyz").await.status == 200).then_some(())).await;
    assert!(guard.deadline().has_passed());
}

#[tokio::test]
async fn stopping_daemon_answers_and_is_not_ready() {
    let mut served = HttpDaemon::start(&["--drain-timeout", "60s"]);
    let leadership = campaign(&served.client(LONG).await, "last").await;
    let idle = served.connect().await;
    served.daemon.process.signal(Signal::SIGTERM);
    assert_eq!(leadership.at_risk().await.reason, Reason::ShuttingDown);
    let reply = served.get("/readyz").await;
    assert_eq!((reply.status, reply.reason().as_str()), (503, "SHUTTING_DOWN"));
    assert_eq!(served.get("/healthz").await.status, 200);
    assert_eq!(served.leader().await["value"], "last");
    leadership.resign().await.unwrap();
    assert!(served.daemon.process.end().success());
    closes(idle).await;
}

#[tokio::test]
async fn half_closed_client_receives_answer() {
    let served = HttpDaemon::start(&[]);
    for _ in 0..20 {
        let mut connection = served.connect().await;
        connection.write_all(head("GET", "/healthz", "").as_bytes()).await.unwrap();
        connection.shutdown().await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert_eq!(Reply::parse(&answer).status, 200);
    }
}

#[tokio::test]
async fn http_is_served_on_unix_socket() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("http");
    let listen = format!("unix:{}", path.display());
    let mut served = HttpDaemon::of(Daemon::start_with(&["--http-listen", &listen]));
    assert_eq!(served.http, listen);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let connection = UnixStream::connect(&path).await.unwrap();
    let reply = send_request(connection, &head("GET", "/readyz", "Connection: close\r\n")).await;
    assert_eq!(reply.json(), json!({ "status": "ready" }));
    assert!(served.daemon.stop().success());
    assert!(!path.exists(), "a clean shutdown removes the socket");
}

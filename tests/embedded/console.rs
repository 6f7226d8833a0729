//! The web console's requests, over real sockets. `tests/console` has the tests in a
//! browser.

use leasehold_test_support::{
    http_endpoint::{HttpDaemon, LONG, Reply, send_request},
    until,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// Streams that a daemon serves at the same time.
const MAX_STREAMS: usize = 32;

fn start() -> HttpDaemon {
    HttpDaemon::start(&["--console", "--console-hosts", "locks.example.com, other.example"])
}

async fn request(served: &HttpDaemon, method: &str, target: &str, headers: &str) -> Reply {
    let request = format!("{method} {target} HTTP/1.1\r\n{headers}\r\n");
    send_request(served.connect().await, &request).await
}

async fn get(served: &HttpDaemon, target: &str) -> Reply {
    request(served, "GET", target, &format!("Host: {}\r\n", served.http)).await
}

async fn view(served: &HttpDaemon, target: &str) -> Value {
    let reply = get(served, target).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// Stream of snapshots.
struct Events(BufReader<TcpStream>);

impl Events {
    async fn open(served: &HttpDaemon, query: &str) -> Self {
        let mut connection = served.connect().await;
        let head =
            format!("GET /console/api/events?{query} HTTP/1.1\r\nHost: {}\r\n\r\n", served.http);
        connection.write_all(head.as_bytes()).await.unwrap();
        Self(BufReader::new(connection))
    }

    /// Returns the next snapshot; none at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.unwrap_or_default() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// Returns the first snapshot that fits.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let snapshot = self.next().await.expect("the stream continues");
            if fits(&snapshot) {
                return snapshot;
            }
        }
    }
}

#[tokio::test]
async fn console_is_off_by_default() {
    let served = HttpDaemon::start(&[]);
    for target in ["/", "/console/app.js", "/console/api/locks", "/console/api/events?view=daemon"]
    {
        assert_eq!(get(&served, target).await.status, 404, "{target}");
    }
}

#[test]
fn console_without_http_listener_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = leasehold_test_support::serve(dir.path(), "127.0.0.1:0", &["--console"]);
    let output = serve.output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("http_listen"), "{message}");
}

#[tokio::test]
async fn answers_restrict_the_browser() {
    let served = start();
    for (target, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/console/app.js", "text/javascript; charset=utf-8"),
        ("/console/style.css", "text/css; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
        ("/console/api/overview", "application/json"),
        ("/console/none", "application/json"),
    ] {
        let reply = get(&served, target).await;
        assert_eq!(reply.header("content-type"), Some(kind), "{target}");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert!(reply.header("cache-control").is_some(), "{reply:?}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let host = format!("Host: {}\r\n", served.http);
        let reply = request(&served, method, "/console/api/locks", &host).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let served = start();
    let own = &served.http;
    for target in ["/", "/console/app.js", "/console/api/locks", "/console/api/events?view=daemon"]
    {
        for headers in [
            "Host: evil.example\r\n".to_owned(),
            "Host: 127.0.0.1.evil.example:80\r\n".to_owned(),
            format!("Host: {own}\r\nOrigin: http://evil.example\r\n"),
            format!("Host: {own}\r\nOrigin: null\r\n"),
            "Host: evil.example\r\nOrigin: http://evil.example\r\n".to_owned(),
        ] {
            let reply = request(&served, "GET", target, &headers).await;
            assert_eq!((reply.status, reply.reason().as_str()), (403, "FORBIDDEN"), "{headers}");
        }
    }
    for headers in [
        "Host: localhost\r\n".to_owned(),
        "Host: [::1]:80\r\n".to_owned(),
        "Host: locks.example.com\r\nOrigin: https://locks.example.com\r\n".to_owned(),
        "Host: Other.example:8080\r\n".to_owned(),
        format!("Host: {own}\r\nOrigin: http://{own}\r\n"),
    ] {
        let reply = request(&served, "GET", "/console/api/locks", &headers).await;
        assert_eq!(reply.status, 200, "{headers}");
    }
    // Probes send any host.
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn locks_are_paged_and_filtered() {
    let served = start();
    let client = served.client(LONG).await;
    let mut guards = Vec::new();
    for number in 0..5 {
        guards.push(client.lock(format!("a/{number}")).acquire().await.unwrap());
    }
    guards.push(client.in_namespace("team").lock("a/9").acquire().await.unwrap());
    let leadership = client.election("b").campaign([0xff]).await.unwrap();
    let names = |page: &Value| -> Vec<String> {
        let locks = page["locks"].as_array().unwrap().iter();
        locks.map(|lock| lock["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = view(&served, "/console/api/locks?prefix=a/&limit=4").await;
    assert_eq!(
        (names(&first), &first["total"]),
        (vec!["a/0".into(), "a/1".into(), "a/2".into(), "a/3".into()], &json!(6))
    );
    let cursor = first["next"].as_str().unwrap();
    let second =
        view(&served, &format!("/console/api/locks?prefix=a/&limit=4&after={cursor}")).await;
    assert_eq!((names(&second), &second["next"]), (vec!["a/4".into(), "a/9".into()], &Value::Null));
    let team = view(&served, "/console/api/locks?namespace=team").await;
    assert_eq!(names(&team), ["a/9"]);
    let elections = view(&served, "/console/api/locks?filter=elections").await;
    let election = &elections["locks"][0];
    assert_eq!((names(&elections), &election["election"]), (vec!["b".into()], &json!(true)));
    assert_eq!(election["value"], json!({ "text": null, "bytes": 1 }));
    assert_eq!(election["token"], leadership.token().to_string());
    assert_eq!(election["state"], "held");
    assert!(election["ends"].as_u64() > election["since"].as_u64(), "{election}");
    assert_eq!(elections["counts"]["held"], 7);
    for (target, field) in
        [("locks?limit=501", "limit"), ("lock?name=%07", "name"), ("events?view=x", "view")]
    {
        let reply = get(&served, &format!("/console/api/{target}")).await;
        assert_eq!((reply.status, reply.json()["error"]["field"].as_str()), (400, Some(field)));
    }
}

#[tokio::test]
async fn stream_sends_each_state_of_a_lock() {
    let served = start();
    let (client, other) = (served.client(LONG).await, served.client(LONG).await);
    let mut events = Events::open(&served, "view=lock&namespace=default&name=orders").await;
    let first = events.next().await.unwrap();
    assert_eq!((&first["lock"]["state"], &first["diagnosis"]), (&json!("free"), &json!("free")));
    let guard = client.lock("orders").acquire().await.unwrap();
    let token = json!(guard.token().to_string());
    events.until(|snapshot| snapshot["lock"]["token"] == token).await;
    let waiting = tokio::spawn(async move { other.lock("orders").acquire().await.unwrap() });
    let queued = events.until(|snapshot| snapshot["waiters"]["total"] == 1).await;
    assert_eq!(queued["diagnosis"], "waiting_for_holder");
    assert_eq!(queued["waiters"]["items"][0]["position"], 1);
    guard.release().await.unwrap();
    let next = waiting.await.unwrap();
    let token = json!(next.token().to_string());
    let handed_off = events.until(|snapshot| snapshot["lock"]["token"] == token).await;
    assert_eq!(handed_off["history"][0]["cause"], "handoff");
    assert!(served.daemon.run(&["break", "orders", "--reason", "test"]).status.success());
    next.lost().await;
    let lost = events.until(|snapshot| snapshot["history"][0]["kind"] == "lost").await;
    assert_eq!(
        (&lost["history"][0]["cause"], &lost["totals"]["lost"]),
        (&json!("broken"), &json!(1))
    );
}

#[tokio::test]
async fn secrets_are_in_no_answer() {
    let served = start();
    let client = served.client(LONG).await;
    let _guard = client.lock("orders").acquire().await.unwrap();
    let session = client.session().unwrap().id.to_string();
    for target in ["overview", "locks", "lock?name=orders"] {
        let reply = get(&served, &format!("/console/api/{target}")).await;
        assert!(reply.body.contains("orders"), "{reply:?}");
        for word in [session.as_str(), "session_id", "handle", "secret", "lease_id"] {
            assert!(!reply.body.contains(word), "{target} contains {word}");
        }
    }
}

#[tokio::test]
async fn streams_are_limited_and_others_still_served() {
    let served = start();
    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        let mut events = Events::open(&served, "view=daemon").await;
        assert!(events.next().await.is_some());
        streams.push(events);
    }
    let refused = get(&served, "/console/api/events?view=daemon").await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "LIMIT"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(served.get("/healthz").await.status, 200);
    // A stream outlives the other connections.
    let mut idle = served.connect().await;
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut idle, &mut rest).await.unwrap();
    for _ in 0..9 {
        assert!(streams[0].next().await.is_some());
    }
    // A closed page makes room for another one.
    drop(streams);
    until(async || {
        let mut events = Events::open(&served, "view=daemon").await;
        events.next().await
    })
    .await;
}

#[tokio::test]
async fn slow_reader_is_dropped() {
    let served = start();
    let client = served.client(LONG).await;
    let mut guards = Vec::new();
    for number in 0..400 {
        let name = format!("{number:03}{}", "x".repeat(200));
        guards.push(client.lock(name).acquire().await.unwrap());
    }
    let open = async || Events::open(&served, "view=locks&limit=500").await;
    let mut slow = Vec::new();
    for _ in 0..MAX_STREAMS {
        slow.push(open().await);
    }
    // None of them reads. Their places become free when the sockets' buffers are full.
    until(async || open().await.next().await).await;
    drop(slow);
}

#[tokio::test]
async fn shutdown_ends_streams() {
    let mut served = start();
    let mut events = Events::open(&served, "view=daemon").await;
    assert!(events.next().await.is_some());
    assert!(served.daemon.stop().success());
    while events.next().await.is_some() {}
}

#[tokio::test]
async fn console_runs_without_history() {
    let served = HttpDaemon::start(&["--console", "--history", "0"]);
    let client = served.client(LONG).await;
    let _guard = client.lock("orders").acquire().await.unwrap();
    let lock = view(&served, "/console/api/lock?name=orders").await;
    assert_eq!((&lock["lock"]["state"], &lock["history"]), (&json!("held"), &json!([])));
    assert_eq!(lock["totals"]["grants"], 1);
}

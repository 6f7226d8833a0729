//! Arbitrary bytes on the sockets of a real daemon.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use leasehold_client::Client;
use leasehold_fuzz::Fuzz;
use leasehold_test_support::{Daemon, Running, serve};
use tempfile::TempDir;
use tokio::runtime::Builder;

const HTTP_WORDS: &[&str] = &[
    "GET ",
    "HEAD ",
    "POST ",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "Host: x\r\n",
    "\r\n",
    "/healthz",
    "/readyz",
    "/v1/elections/",
    "/console/",
    "api/locks",
    "api/lock",
    "&prefix=",
    "&after=",
    "&limit=",
    "&namespace=",
    "&name=",
    "Host: localhost\r\n",
    "Origin: http://localhost\r\n",
    "default/",
    "?self=1",
    "&self=0",
    "%2F",
    "%",
    "%00",
    "%ff",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: keep-alive\r\n",
    "Expect: 100-continue\r\n",
    "Upgrade: h2c\r\n",
    "http://x/healthz",
    "*",
    " ",
    "\t",
    ":",
];

/// Time in which most answers arrive.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(5);

/// Exceeds the duration of every exchange.
const LONG: Duration = Duration::from_secs(20);

/// Daemon with a log file, which records a panic in any task.
struct Logged {
    daemon: Daemon,
    log: PathBuf,
}

impl Logged {
    fn start(arguments: &[&str]) -> Self {
        let dir = Arc::new(TempDir::new().unwrap());
        let log = dir.path().join("log");
        let mut command = serve(dir.path(), "127.0.0.1:0", arguments);
        command.stderr(File::create(&log).unwrap());
        let mut process = Running::start(&mut command);
        let line = process.line();
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
        let endpoint = format!("http://{address}");
        Self { daemon: Daemon { process, endpoint, dir }, log }
    }

    /// Checks that the daemon grants a lock, stops cleanly and has not panicked.
    fn assert_healthy_and_stop(mut self) {
        assert_grants(&self.daemon);
        assert!(self.daemon.stop().success());
        let log = fs::read_to_string(&self.log).unwrap();
        let panic = log.lines().find(|line| line.contains("panicked"));
        assert_eq!(panic, None);
    }
}

/// Sends bytes and returns the answer. After `timeout` without an end of the answer, closes
/// the sending side, so that the daemon does not wait for the rest of a request.
fn exchange(address: &str, bytes: &[u8], timeout: Duration) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).unwrap();
    // The daemon may close the connection before it has read everything.
    _ = connection.write_all(bytes);
    connection.set_read_timeout(Some(timeout)).unwrap();
    let mut answer = Vec::new();
    for last in [false, true] {
        match connection.read_to_end(&mut answer) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => assert!(!last, "the daemon keeps a half-closed connection: {error}"),
        }
        _ = connection.shutdown(Shutdown::Write);
        connection.set_read_timeout(Some(LONG)).unwrap();
    }
    answer
}

/// Checks that a regular client acquires and releases a lock.
fn assert_grants(daemon: &Daemon) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder(&daemon.endpoint).connect().await.unwrap();
        let guard = client.lock("orders").acquire().await.unwrap();
        guard.release().await.unwrap();
    });
}

#[test]
fn http_requests_are_answered_or_refused_fuzzed() {
    let mut logged = Logged::start(&["--http-listen", "127.0.0.1:0", "--console"]);
    let line = logged.daemon.process.line();
    let address = line.strip_prefix("listening for HTTP on ").unwrap().to_owned();
    Fuzz::new("http-request").words(HTTP_WORDS).max_bytes(20_000).run(|input| {
        let answer = exchange(&address, input, ANSWER_TIMEOUT);
        let text = String::from_utf8(answer).expect("it is text");
        if text.is_empty() {
            return "nothing".to_owned();
        }
        let (head, body) = text.split_once("\r\n\r\n").expect("it has a head");
        let status = head.strip_prefix("HTTP/1.").expect("it is HTTP").get(2..5).unwrap();
        assert!(
            ["100", "200", "400", "403", "404", "405", "414", "431", "503"].contains(&status),
            "{text}"
        );
        let json = serde_json::from_str::<serde_json::Value>(body);
        let reason = match &json {
            Ok(json) => {
                let error = &json["error"];
                let success = || format!("{} {}", json["election"].is_object(), json["status"]);
                let text = error["message"].as_str().map_or_else(success, str::to_owned);
                format!("{text} {}", error["field"].as_str().unwrap_or_default())
            }
            // A file of the console or a stream, the answer to a HEAD request, or an answer
            // of the HTTP library.
            Err(_) => {
                let is_json = head.contains("content-type: application/json");
                assert!(body.is_empty() || status == "100" || !is_json, "{text}");
                "no body".to_owned()
            }
        };
        // Letters, because outcomes that differ only in numbers count as one kind.
        let status: String = status.bytes().map(|digit| char::from(digit + b'A' - b'0')).collect();
        format!("{status} {reason}")
    });
    let ready = exchange(&address, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", LONG);
    assert!(ready.starts_with(b"HTTP/1.1 200"), "{}", ready.escape_ascii());
    logged.assert_healthy_and_stop();
}

#[test]
fn daemon_survives_arbitrary_bytes_on_grpc_port_fuzzed() {
    let logged = Logged::start(&[]);
    let address = logged.daemon.address().to_owned();
    Fuzz::new("grpc-connection").max_bytes(20_000).run(|input| {
        let answer = exchange(&address, input, ANSWER_TIMEOUT);
        // The kinds of the frames in the answer.
        let mut kinds = String::new();
        let mut rest = &*answer;
        while let [a, b, c, kind, ..] = *rest {
            // Letters, because outcomes that differ only in numbers count as one kind.
            kinds.push(char::from(b'a' + kind % 26));
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        kinds
    });
    logged.assert_healthy_and_stop();
}

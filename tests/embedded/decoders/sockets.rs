//! Bytes on the sockets of a real daemon.

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

/// Within which most answers come.
const MOMENT: Duration = Duration::from_millis(5);

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// A daemon whose log is kept, so that a panic in one of its tasks is found.
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

    /// It serves others, has not panicked, and stops when it is told to.
    fn ends_well(mut self) {
        serves(&self.daemon);
        assert!(self.daemon.stop().success());
        let log = fs::read_to_string(&self.log).unwrap();
        let panic = log.lines().find(|line| line.contains("panicked"));
        assert_eq!(panic, None);
    }
}

/// Sends bytes and reads all that comes. After a moment without any answer it
/// says that there are no more, for what is only the beginning of a request.
fn exchange(address: &str, bytes: &[u8], moment: Duration) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).unwrap();
    // The daemon may have seen enough before it has read all.
    _ = connection.write_all(bytes);
    connection.set_read_timeout(Some(moment)).unwrap();
    let mut answer = Vec::new();
    for last in [false, true] {
        match connection.read_to_end(&mut answer) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => assert!(!last, "a connection that was ended is kept: {error}"),
        }
        _ = connection.shutdown(Shutdown::Write);
        connection.set_read_timeout(Some(LONG)).unwrap();
    }
    answer
}

/// A lock is granted to, and released by, a client that does nothing special.
fn serves(daemon: &Daemon) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder(&daemon.endpoint).connect().await.unwrap();
        let guard = client.lock("orders").acquire().await.unwrap();
        guard.release().await.unwrap();
    });
}

#[test]
fn http_requests_are_answered_or_refused_fuzzed() {
    let mut logged = Logged::start(&["--http-listen", "127.0.0.1:0"]);
    let line = logged.daemon.process.line();
    let address = line.strip_prefix("listening for HTTP on ").unwrap().to_owned();
    Fuzz::new("http-request").words(HTTP_WORDS).max_bytes(20_000).run(|input| {
        let answer = exchange(&address, input, MOMENT);
        let text = String::from_utf8(answer).expect("it is text");
        if text.is_empty() {
            return "nothing".to_owned();
        }
        let (head, body) = text.split_once("\r\n\r\n").expect("it has a head");
        let status = head.strip_prefix("HTTP/1.").expect("it is HTTP").get(2..5).unwrap();
        assert!(
            ["100", "200", "400", "404", "405", "414", "431", "503"].contains(&status),
            "{text}"
        );
        let json = serde_json::from_str::<serde_json::Value>(body);
        let reason = match &json {
            Ok(json) => {
                let error = &json["error"];
                let of_own = |leader: bool| format!("{leader} {}", json["status"]);
                let fine = || of_own(json["election"].is_object());
                let text = error["message"].as_str().map_or_else(fine, str::to_owned);
                format!("{text} {}", error["field"].as_str().unwrap_or_default())
            }
            // To a HEAD, or from the HTTP library itself.
            Err(_) => {
                assert!(body.is_empty() || status == "100", "{text}");
                "no body".to_owned()
            }
        };
        // Letters, since numbers make no other kind of outcome.
        let status: String = status.bytes().map(|digit| char::from(digit + b'A' - b'0')).collect();
        format!("{status} {reason}")
    });
    let ready = exchange(&address, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", LONG);
    assert!(ready.starts_with(b"HTTP/1.1 200"), "{}", ready.escape_ascii());
    logged.ends_well();
}

#[test]
fn a_daemon_outlives_all_that_is_no_grpc_fuzzed() {
    let logged = Logged::start(&[]);
    let address = logged.daemon.address().to_owned();
    Fuzz::new("grpc-connection").max_bytes(20_000).run(|input| {
        let answer = exchange(&address, input, MOMENT);
        // The kinds of the frames that come back.
        let mut kinds = String::new();
        let mut rest = &*answer;
        while let [a, b, c, kind, ..] = *rest {
            // Letters, since numbers make no other kind of outcome.
            kinds.push(char::from(b'a' + kind % 26));
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        kinds
    });
    logged.ends_well();
}

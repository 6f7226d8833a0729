//! Bytes on the sockets of a real daemon.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use leasehold_client::Client;
use leasehold_fuzz::Fuzz;
use tokio::runtime::Builder;

use super::support::Daemon;

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

/// Sends bytes, says that there are no more, and reads all that comes.
fn exchange(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The daemon may have seen enough before it has read all.
    _ = connection.write_all(bytes);
    _ = connection.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = connection.read_to_end(&mut answer) {
        let reset = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(reset, "the daemon keeps a connection that was ended: {error}");
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
fn http_requests_are_answered_or_refused() {
    let mut daemon = Daemon::start_with(&["--http-listen", "127.0.0.1:0"]);
    let line = daemon.process.line();
    let address = line.strip_prefix("listening for HTTP on ").unwrap().to_owned();
    Fuzz::new("http-request").words(HTTP_WORDS).longest(20_000).run(|input| {
        let answer = exchange(&address, input);
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
            Ok(json) => json["error"]["reason"].as_str().unwrap_or("fine").to_owned(),
            // To a HEAD, or from the HTTP library itself.
            Err(_) => {
                assert!(body.is_empty() || status == "100", "{text}");
                "no body".to_owned()
            }
        };
        format!("{status} {reason}")
    });
    assert!(
        exchange(&address, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").starts_with(b"HTTP/1.1 200")
    );
    serves(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn a_daemon_outlives_all_that_is_no_grpc() {
    let mut daemon = Daemon::start();
    let address = daemon.address().to_owned();
    Fuzz::new("grpc-connection").longest(20_000).run(|input| {
        let answer = exchange(&address, input);
        // The kinds of the frames that come back.
        let mut kinds = Vec::new();
        let mut rest = &*answer;
        while let [a, b, c, kind, ..] = *rest {
            kinds.push(kind.to_string());
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        kinds
            .iter()
            .map(|kind| format!("<{}>", "x".repeat(kind.parse::<usize>().unwrap() % 16)))
            .collect::<String>()
    });
    serves(&daemon);
    assert!(daemon.stop().success());
}

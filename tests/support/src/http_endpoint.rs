//! HTTP endpoint of a daemon: requests over sockets, and their responses.

use std::time::Duration;

use leasehold_client::{Client, Leadership};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::Daemon;

/// Longer than any step of a test.
pub const LONG: Duration = Duration::from_secs(60);

/// A daemon with an HTTP listener on a free port.
pub struct HttpDaemon {
    pub daemon: Daemon,
    pub http: String,
}

impl HttpDaemon {
    pub fn start(arguments: &[&str]) -> Self {
        Self::of(Daemon::start_with(&[&["--http-listen", "127.0.0.1:0"], arguments].concat()))
    }

    pub fn restart(self) -> Self {
        Self::of(self.daemon.restart(&["--http-listen", "127.0.0.1:0"]))
    }

    pub fn of(mut daemon: Daemon) -> Self {
        let line = daemon.process.line();
        let address = line.strip_prefix("listening for HTTP on ");
        let http = address.unwrap_or_else(|| panic!("unexpected output {line:?}")).to_owned();
        Self { daemon, http }
    }

    pub async fn client(&self, ttl: Duration) -> Client {
        let builder = Client::builder(&self.daemon.endpoint).client_name("test 1").ttl(ttl);
        builder.connect().await.unwrap()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.http).await.unwrap()
    }

    pub async fn get(&self, target: &str) -> Reply {
        self.send("GET", target).await
    }

    pub async fn send(&self, method: &str, target: &str) -> Reply {
        send_request(self.connect().await, &head(method, target, "Connection: close\r\n")).await
    }

    /// Leader of the election "scheduler", or null.
    pub async fn leader(&self) -> Value {
        let reply = self.get("/v1/elections/default/scheduler").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["leader"].clone()
    }

    /// Checks whether the leader of "scheduler" is a client of this daemon.
    pub async fn check_local_leader(&self) -> Reply {
        self.get("/v1/elections/default/scheduler?self=1").await
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Reply {
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let (line, headers) = head.split_once("\r\n").unwrap();
        let status = line.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        Self { status, headers: headers.to_owned(), body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Reason of an error response.
    pub fn reason(&self) -> String {
        let error = &self.json()["error"];
        assert!(!error["message"].as_str().unwrap().is_empty(), "{self:?}");
        error["reason"].as_str().unwrap().to_owned()
    }
}

pub fn head(method: &str, target: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{headers}\r\n")
}

/// Sends a request and reads until the daemon closes the connection. The daemon
/// may close it before it has read all of a refused request.
pub async fn send_request(
    mut connection: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> Reply {
    _ = connection.write_all(request.as_bytes()).await;
    let mut text = Vec::new();
    _ = connection.read_to_end(&mut text).await;
    Reply::parse(&String::from_utf8(text).unwrap())
}

pub async fn campaign(client: &Client, value: impl Into<Vec<u8>>) -> Leadership {
    client.election("scheduler").campaign(value).await.unwrap()
}

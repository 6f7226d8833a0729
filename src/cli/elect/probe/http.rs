//! Probe by HTTP.

use std::{error::Error as _, io, pin::pin, str::FromStr};

use hyper::{
    Request, Uri,
    client::conn::http1,
    header::{ACCEPT, CONNECTION, HOST, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Probe;

/// Maximum size of the head of a response.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Maximum number of headers of a response; their size is the tighter limit.
const MAX_HEADERS: usize = 1024;

/// Target of the GET request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct HttpProbe {
    host: String,
    port: u16,
    url: Uri,
}

impl FromStr for HttpProbe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "must be http://HOST[:PORT][/PATH]";
        if !text.starts_with("http://") {
            return Err(EXPECTED.to_owned());
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("must be printable ASCII; percent-encode other characters".to_owned());
        }
        let url: Uri = text.parse().map_err(|_| EXPECTED.to_owned())?;
        let authority = url.authority().ok_or(EXPECTED)?;
        // User information is refused: only a port may follow the host.
        let port = match authority.as_str().strip_prefix(authority.host()).ok_or(EXPECTED)? {
            "" => 80,
            port => port.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or(EXPECTED)?,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(EXPECTED.to_owned());
        }
        Ok(Self { host, port, url })
    }
}

impl Probe for HttpProbe {
    const KIND: &'static str = "HTTP";

    async fn check(&self) -> Result<(), String> {
        match self.status().await? {
            200..=399 => Ok(()),
            status => Err(format!("status {status}")),
        }
    }
}

impl HttpProbe {
    /// Returns the status of the response. Uses a new connection, because a failure to
    /// connect is a failed probe.
    async fn status(&self) -> Result<u16, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = TokioIo::new(stream.map_err(|error| error.to_string())?);
        let mut client = http1::Builder::new();
        client.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
        let (mut sender, connection) = client.handshake(stream).await.map_err(explain)?;
        let mut response =
            pin!(sender.send_request(self.request().map_err(|error| error.to_string())?));
        let response = tokio::select! {
            biased;
            response = &mut response => response,
            // The connection delivers the response before it ends.
            _ = connection => response.await,
        };
        Ok(response.map_err(explain)?.status().as_u16())
    }

    fn request(&self) -> Result<Request<String>, hyper::http::Error> {
        let target = self.url.path_and_query().cloned().map(Uri::from).unwrap_or_default();
        Request::get(target)
            .header(HOST, self.url.authority().map_or("", |authority| authority.as_str()))
            .header(USER_AGENT, concat!("leasehold/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "*/*")
            .header(CONNECTION, "close")
            .body(String::new())
    }
}

/// Explains an error: a failed connection, or a response that is not HTTP.
fn explain(error: hyper::Error) -> String {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.map_or_else(|| "not an HTTP/1.1 response".to_owned(), io::Error::to_string)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (url, host, port, target) in [
            ("http://localhost", "localhost", 80, "/"),
            ("http://localhost:8080/", "localhost", 8080, "/"),
            ("http://10.0.0.7:1/a/b?c=d:e#f", "10.0.0.7", 1, "/a/b?c=d:e"),
            ("http://[::1]/x", "::1", 80, "/x"),
            ("http://[::1]:81?x", "::1", 81, "/?x"),
        ] {
            let probe: HttpProbe = url.parse().unwrap();
            assert_eq!((probe.host.as_str(), probe.port), (host, port));
            assert_eq!(probe.request().unwrap().uri().to_string(), target);
        }
        for wrong in [
            "localhost",
            "https://localhost",
            "http://",
            "http://:80/",
            "http://a:b/",
            "http://a:70000/",
            "http://user@a/",
            "http://a/\r\nX: y",
            "http://a/ü",
        ] {
            assert!(wrong.parse::<HttpProbe>().is_err(), "{wrong:?}");
        }
    }

    /// Probes a server that reads a request and sends `response`. Returns the request
    /// and the outcome.
    async fn probe(path: &str, response: &str) -> (String, Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        let probe: HttpProbe = url.parse().unwrap();
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(response.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        };
        tokio::join!(served, probe.check())
    }

    #[tokio::test]
    async fn request_has_target_and_host() {
        let (request, outcome) = probe("?a=b", "HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(outcome, Ok(()));
        let mut lines = request.lines();
        assert_eq!(lines.next(), Some("GET /?a=b HTTP/1.1"));
        let headers: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        assert_eq!(headers.len(), 4, "{request}");
        assert!(headers.iter().any(|line| line.starts_with("host: 127.0.0.1:")), "{request}");
        assert!(headers.contains(&"connection: close"), "{request}");
    }

    #[tokio::test]
    async fn status_decides() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(20_000));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(500));
        let no_http = || Err("not an HTTP/1.1 response".to_owned());
        for (response, outcome) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", Ok(())),
            ("HTTP/1.0 399 \n\n", Ok(())),
            (many.as_str(), Ok(())),
            ("HTTP/1.1 503 Busy\r\n\r\n", Err("status 503".to_owned())),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\n\r\n", Err("status 404".to_owned())),
            ("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", no_http()),
            ("HTTP/1.1 20", no_http()),
            ("SSH-2.0-OpenSSH_9\r\n", no_http()),
            ("HTTP/1.1 hello\r\n\r\n", no_http()),
            (long.as_str(), no_http()),
            ("", no_http()),
        ] {
            assert_eq!(probe("", response).await.1, outcome, "{response:.40}");
        }
    }
}

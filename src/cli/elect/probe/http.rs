//! A probe by HTTP. It needs no more of HTTP/1.1 than the first line of an
//! answer, so it reads no more.

use std::{io, str::FromStr};

use tokio::net::TcpStream;

use super::Probe;

/// As much as is read before the answer must have begun.
const LONGEST_HEAD: usize = 16 * 1024;

/// What to GET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct HttpProbe {
    host: String,
    port: u16,
    request: String,
}

impl FromStr for HttpProbe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "must be http://HOST[:PORT][/PATH]";
        let rest = text.strip_prefix("http://").ok_or(EXPECTED)?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("must have nothing but printable ASCII; encode the rest".to_owned());
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let after_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match authority[after_host..].rfind(':') {
            Some(colon) => authority.split_at(after_host + colon),
            None => (authority, ":80"),
        };
        let port = port[1..].parse().map_err(|_| EXPECTED.to_owned())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || authority.contains('@') {
            return Err(EXPECTED.to_owned());
        }
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: leasehold/{}\r\n\
             Accept: */*\r\nConnection: close\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        );
        Ok(Self { host, port, request })
    }
}

impl Probe for HttpProbe {
    const KIND: &'static str = "HTTP";

    async fn ask(&self) -> Result<(), String> {
        match self.status().await.map_err(|error| error.to_string())? {
            200..=399 => Ok(()),
            status => Err(format!("answered with {status}")),
        }
    }
}

impl HttpProbe {
    async fn status(&self) -> io::Result<u16> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        send(&stream, self.request.as_bytes()).await?;
        let mut head = Vec::new();
        loop {
            if let Some(status) = status_of(&head)? {
                return Ok(status);
            }
            if head.len() > LONGEST_HEAD || !receive(&stream, &mut head).await? {
                return Err(not_http());
            }
        }
    }
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Some more bytes, unless the stream has ended.
async fn receive(stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 1024];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                return Ok(count > 0);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The status of the answer, once that much has arrived. Those that only
/// announce an answer are passed over.
fn status_of(mut head: &[u8]) -> io::Result<Option<u16>> {
    loop {
        let Some(end) = head.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = String::from_utf8_lossy(&head[..end]);
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split_whitespace().nth(1));
        let digits =
            |status: &&str| status.len() == 3 && status.bytes().all(|c| c.is_ascii_digit());
        match status.filter(digits).and_then(|status| status.parse().ok()) {
            Some(100 | 102..=199) => {}
            Some(status @ 101..=999) => return Ok(Some(status)),
            _ => return Err(not_http()),
        }
        let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        head = &head[end + 4..];
    }
}

fn not_http() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no answer of HTTP/1.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, host, port, target) in [
            ("http://localhost", "localhost", 80, "/"),
            ("http://localhost:8080/", "localhost", 8080, "/"),
            ("http://10.0.0.7:1/a/b?c=d:e#f", "10.0.0.7", 1, "/a/b?c=d:e"),
            ("http://[::1]/x", "::1", 80, "/x"),
            ("http://[::1]:81?x", "::1", 81, "/?x"),
        ] {
            let probe: HttpProbe = url.parse().unwrap();
            assert_eq!((probe.host.as_str(), probe.port), (host, port));
            assert!(probe.request.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{probe:?}");
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

    #[test]
    fn the_first_line_decides() {
        let status = |text: &str| status_of(text.as_bytes()).map_err(|_| "no HTTP");
        assert_eq!(status("HTTP/1.1 200 OK\r\nA: b\r\n"), Ok(Some(200)));
        assert_eq!(status("HTTP/1.0 503 \n"), Ok(Some(503)));
        assert_eq!(status("HTTP/1.1 20"), Ok(None));
        assert_eq!(status("HTTP/1.1 103 Early Hints\r\nLink: x\r\n"), Ok(None));
        assert_eq!(status("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\n"), Ok(Some(404)));
        assert_eq!(status("SSH-2.0-OpenSSH_9\r\n"), Err("no HTTP"));
        assert_eq!(status("HTTP/1.1 hello\r\n"), Err("no HTTP"));
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_fuzz::Fuzz;

    use super::*;

    const WORDS: &[&str] = &[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 503 ",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 +200",
        "\r\n\r\n",
        "http://[::1]:80",
        "http://a",
        ":70000",
        "@",
        "#",
        "?",
        "]",
    ];

    /// The first line is what to ask, the rest what is answered.
    #[test]
    fn one_request_is_sent_and_more_of_an_answer_does_not_change_it() {
        Fuzz::new("probe").words(WORDS).run(|input| {
            let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
            let url = String::from_utf8_lossy(&input[..end]).into_owned();
            let asked = match url.parse::<HttpProbe>() {
                Ok(HttpProbe { host, request, .. }) => {
                    assert!(!host.is_empty() && request.is_ascii(), "{request:?}");
                    assert_eq!(request.matches('\n').count(), 6, "{request:?}");
                    assert_eq!(request.find("\r\n\r\n"), Some(request.len() - 4), "{request:?}");
                    assert_eq!(request.split(' ').count(), 7, "{request:?}");
                    "asks".to_owned()
                }
                Err(problem) => problem,
            };
            let answer = &input[input.len().min(end + 1)..];
            let mut decided = None;
            for length in 0..=answer.len().min(400) {
                let status = status_of(&answer[..length]).map_err(|error| error.to_string());
                if let Some(before) = &decided {
                    assert_eq!(*before, status);
                } else if status != Ok(None) {
                    if let Ok(Some(status)) = status {
                        let text = String::from_utf8_lossy(&answer[..length]).into_owned();
                        assert!(text.split_whitespace().any(|word| word == status.to_string()));
                        assert!((101..=999).contains(&status), "{status}");
                    }
                    decided = Some(status);
                }
            }
            format!("{asked} {decided:?}")
        });
    }
}

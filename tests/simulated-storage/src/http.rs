//! REST protocol of the storage service: requests to calls, answers to
//! responses.

use std::fmt::Write as _;

use azure_core::time::{OffsetDateTime, to_rfc7231};
use percent_encoding::percent_decode_str;

use crate::storage::{Answer, Call, Metadata, Operation};

/// HTTP request: the parts that the service uses.
pub struct Request<'a> {
    /// Method in upper case.
    pub method: &'a str,
    /// Path, which begins with account and container.
    pub path: &'a str,
    /// Query without the question mark.
    pub query: &'a str,
    /// Headers with lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: &'a [u8],
}

/// HTTP response.
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Text body.
    pub body: String,
    /// Binary body, if any.
    pub content: Option<Vec<u8>>,
}

impl Request<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.header(name).map(str::to_owned)
    }

    fn parameter(&self, name: &str) -> Option<String> {
        self.query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| percent_decode_str(value).decode_utf8_lossy().into_owned())
        })
    }

    /// Returns the call; `None` if the simulated service does not support it.
    #[must_use]
    pub fn call(&self) -> Option<Call> {
        let mut parts = self.path.trim_start_matches('/').splitn(3, '/');
        let blob = parts.nth(2).unwrap_or_default();
        let component = self.parameter("comp");
        let id = || self.owned("x-ms-lease-id").unwrap_or_default();
        let number = |name| self.header(name).and_then(|text| text.parse().ok());
        let operation = match (self.method, component.as_deref()) {
            ("PUT", Some("lease")) => match self.header("x-ms-lease-action")? {
                "acquire" => Operation::Acquire {
                    id: self.owned("x-ms-proposed-lease-id")?,
                    seconds: number("x-ms-lease-duration")?,
                },
                "renew" => Operation::Renew { id: id() },
                "release" => Operation::Release { id: id() },
                "break" => Operation::Break { within: number("x-ms-lease-break-period") },
                _ => return None,
            },
            ("PUT", Some("metadata")) => Operation::SetMetadata { metadata: self.metadata() },
            ("PUT", None) => {
                Operation::Upload { metadata: self.metadata(), content: self.body.to_vec() }
            }
            ("DELETE", None) => Operation::Delete,
            ("HEAD", None) => Operation::Read,
            ("GET", None) => Operation::Download,
            ("GET", Some("list")) => Operation::List,
            _ => return None,
        };
        let writes = matches!(
            operation,
            Operation::SetMetadata { .. } | Operation::Upload { .. } | Operation::Delete
        );
        Some(Call {
            path: match operation {
                Operation::List => self.parameter("prefix").unwrap_or_default(),
                _ => percent_decode_str(blob).decode_utf8_lossy().into_owned(),
            },
            operation,
            if_match: self.owned("if-match"),
            if_absent: self.header("if-none-match") == Some("*"),
            lease: if writes { self.owned("x-ms-lease-id") } else { None },
        })
    }

    fn metadata(&self) -> Metadata {
        let all = self.headers.iter();
        all.filter_map(|(key, value)| {
            Some((key.strip_prefix("x-ms-meta-")?.to_owned(), value.clone()))
        })
        .collect()
    }
}

impl Answer {
    /// Returns the HTTP response.
    #[must_use]
    pub fn response(&self) -> Response {
        let mut headers = vec![("date".to_owned(), date(self.date))];
        let mut add = |name: &str, value: String| headers.push((name.to_owned(), value));
        if !self.code.is_empty() {
            add("x-ms-error-code", self.code.to_owned());
        }
        if let Some(etag) = &self.etag {
            add("etag", etag.clone());
        }
        if let Some(seconds) = self.retry_after {
            add("retry-after", seconds.to_string());
        }
        if let Some(lease) = &self.lease {
            add("x-ms-lease-id", lease.clone());
        }
        if let Some(time) = self.lease_time {
            add("x-ms-lease-time", time.to_string());
        }
        if !self.lease_state.is_empty() {
            add("x-ms-lease-state", self.lease_state.to_owned());
        }
        let mut content = None;
        if let Some(blob) = &self.blob {
            add("last-modified", date(blob.modified));
            add("content-length", blob.content.len().to_string());
            if !blob.content.is_empty() {
                let last = blob.content.len() - 1;
                add("content-range", format!("bytes 0-{last}/{}", blob.content.len()));
            }
            for (key, value) in &blob.metadata {
                add(&format!("x-ms-meta-{key}"), value.clone());
            }
            content = Some(blob.content.clone());
        }
        let body = if self.listed.is_empty() { empty_list() } else { self.list() };
        Response { status: self.status, headers, body, content }
    }

    fn list(&self) -> String {
        let mut xml = String::from(HEAD);
        for (path, blob, state) in &self.listed {
            _ = write!(
                xml,
                "<Blob><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>\
                 <LeaseState>{state}</LeaseState></Properties><Metadata>",
                escape(path),
                date(blob.modified),
                blob.etag.trim_matches('"'),
            );
            for (key, value) in &blob.metadata {
                _ = write!(xml, "<{key}>{}</{key}>", escape(value));
            }
            xml.push_str("</Metadata></Blob>");
        }
        xml.push_str(TAIL);
        xml
    }
}

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults \
                    ServiceEndpoint=\"http://127.0.0.1/\" ContainerName=\"locks\"><Blobs>";
const TAIL: &str = "</Blobs><NextMarker /></EnumerationResults>";

fn empty_list() -> String {
    format!("{HEAD}{TAIL}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a date as in HTTP headers, for example `Sun, 06 Nov 1994 08:49:37
/// GMT`.
fn date(seconds: u64) -> String {
    let at = OffsetDateTime::from_unix_timestamp(seconds as i64);
    to_rfc7231(&at.unwrap_or(OffsetDateTime::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_http_format() {
        assert_eq!(date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(date(1_900_000_000), "Sun, 17 Mar 2030 17:46:40 GMT");
    }
}

//! Classification and record of storage calls.

use hyper::{HeaderMap, Method, http::request::Parts};
use leasehold_time::Moment;
use percent_encoding::percent_decode_str;

use super::rule::{Fault, Match};

/// Kinds of storage calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Reads a blob's properties, metadata or content.
    Read,
    Acquire,
    Renew,
    Change,
    Release,
    Break,
    /// Replaces a blob's metadata.
    Write,
    /// Creates or replaces a blob.
    Create,
    Delete,
    /// Lists the blobs of a container.
    List,
    /// Any other call on a container, including its lease.
    Container,
    Other,
}

impl Kind {
    /// Matches calls of this kind on blobs whose path contains `blob`.
    pub fn of(self, blob: &str) -> Match {
        Match::any().kind(self).blob(blob)
    }

    fn read(head: &Parts, blob: &str) -> Self {
        let query = |name: &str| {
            let pairs = head.uri.query().unwrap_or_default().split('&');
            pairs
                .filter_map(|pair| pair.split_once('='))
                .find_map(|(key, value)| (key == name).then_some(value))
        };
        let comp = query("comp");
        if query("restype") == Some("container") {
            return if comp == Some("list") { Self::List } else { Self::Container };
        }
        if blob.is_empty() {
            return Self::Other;
        }
        match (&head.method, comp) {
            (&Method::GET | &Method::HEAD, None | Some("metadata")) => Self::Read,
            (&Method::PUT, Some("lease")) => match header(head, "x-ms-lease-action") {
                Some("acquire") => Self::Acquire,
                Some("renew") => Self::Renew,
                Some("change") => Self::Change,
                Some("release") => Self::Release,
                Some("break") => Self::Break,
                _ => Self::Other,
            },
            (&Method::PUT, Some("metadata")) => Self::Write,
            (&Method::PUT, None) => Self::Create,
            (&Method::DELETE, None) => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// A recorded call. Contains no secrets.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    pub kind: Kind,
    /// Container name; empty if the call names none.
    pub container: String,
    /// Unescaped path of the blob; empty if the call names none.
    pub blob: String,
    /// True if the request has a lease ID.
    pub with_lease_id: bool,
    /// Lease ID of the request, also of a new lease.
    pub lease_id: Option<String>,
    /// W3C trace context of the request.
    pub trace_parent: Option<String>,
    /// Requested lease duration.
    pub lease_seconds: Option<i64>,
    /// Token in the metadata of the request.
    pub token: Option<u64>,
    /// True if the metadata of the request records a break and its operator.
    pub records_break: bool,
    pub if_match: bool,
    pub if_none_match: bool,
    pub received_at: Moment,
    /// Time of the first send to the upstream.
    pub forwarded_at: Option<Moment>,
    /// Time of the response to the client, or of the end without a response.
    pub ended_at: Option<Moment>,
    /// Status of the response to the client.
    pub status: Option<u16>,
    /// Status of the upstream's response, even if the client does not receive
    /// it.
    pub upstream_status: Option<u16>,
    /// Token in the metadata of the upstream's response.
    pub stored_token: Option<u64>,
    /// Status of the upstream's response to the duplicate.
    pub duplicate_status: Option<u16>,
    /// Time of the send of the duplicate.
    pub duplicate_sent_at: Option<Moment>,
    /// Fault applied to the call.
    pub fault: Option<Fault>,
}

impl RecordedCall {
    /// Returns whether the call has ended, with or without a response.
    pub fn is_done(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Records a request to an address of the form `/account/container/path`.
    pub(super) fn read(head: &Parts, received_at: Moment) -> Self {
        let mut path = head.uri.path().splitn(4, '/').skip(2);
        let mut next = || {
            let part = percent_decode_str(path.next().unwrap_or_default());
            part.decode_utf8_lossy().into_owned()
        };
        let container = next();
        let blob = next();
        Self {
            kind: Kind::read(head, &blob),
            container,
            blob,
            with_lease_id: header(head, "x-ms-lease-id").is_some(),
            lease_id: header(head, "x-ms-lease-id")
                .or(header(head, "x-ms-proposed-lease-id"))
                .map(ToString::to_string),
            trace_parent: header(head, "traceparent").map(ToString::to_string),
            lease_seconds: header(head, "x-ms-lease-duration").and_then(|text| text.parse().ok()),
            token: token(&head.headers),
            records_break: header(head, "x-ms-meta-brokenby").is_some(),
            if_match: header(head, "if-match").is_some(),
            if_none_match: header(head, "if-none-match").is_some(),
            received_at,
            forwarded_at: None,
            ended_at: None,
            status: None,
            upstream_status: None,
            stored_token: None,
            duplicate_status: None,
            duplicate_sent_at: None,
            fault: None,
        }
    }
}

/// Token in the metadata of a request or response.
pub(super) fn token(headers: &HeaderMap) -> Option<u64> {
    headers.get("x-ms-meta-token")?.to_str().ok()?.parse().ok()
}

fn header<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

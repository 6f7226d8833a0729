//! What a request asks of the storage.

use hyper::{HeaderMap, Method, http::request::Parts};
use leasehold_time::Moment;
use percent_encoding::percent_decode_str;

use super::rule::{Fault, Match};

/// Kinds of storage calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A blob's properties, metadata or content.
    Read,
    Acquire,
    Renew,
    Change,
    Release,
    Break,
    /// A blob's metadata is replaced.
    Write,
    /// A blob is created or replaced.
    Create,
    Delete,
    /// The blobs of a container.
    List,
    /// Anything else about a container, its lease included.
    Container,
    Other,
}

impl Kind {
    /// Calls of this kind about blobs whose path contains `blob`.
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

/// A call that was seen. It holds nothing secret.
#[derive(Clone, Debug)]
pub struct Seen {
    pub kind: Kind,
    /// Empty if it is about none.
    pub container: String,
    /// The blob's path without escapes; empty if it is about none.
    pub blob: String,
    /// Whether it names a lease that must be held.
    pub with_lease_id: bool,
    /// The duration of the lease that it asks for.
    pub lease_seconds: Option<i64>,
    /// The token that it wants to be kept with the blob.
    pub token: Option<u64>,
    /// Whether it says that, and by whom, the lock was broken.
    pub notes_break: bool,
    pub if_match: bool,
    pub if_none_match: bool,
    pub came: Moment,
    /// When it was first sent on to the upstream.
    pub forwarded: Option<Moment>,
    /// When it was answered, or ended without an answer.
    pub ended: Option<Moment>,
    /// What the client was answered.
    pub status: Option<u16>,
    /// What the upstream answered, also if the client never learns of it.
    pub upstream: Option<u16>,
    /// The token that the upstream said was kept with the blob.
    pub kept: Option<u64>,
    /// What the upstream answered when the call was duplicated.
    pub repeated: Option<u16>,
    /// When the duplicate was sent on.
    pub repeated_at: Option<Moment>,
    /// What was done to it.
    pub fault: Option<Fault>,
}

impl Seen {
    /// Whether it was answered or will never be.
    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// A request to an address in the form `/account/container/path`.
    pub(super) fn read(head: &Parts, came: Moment) -> Self {
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
            lease_seconds: header(head, "x-ms-lease-duration").and_then(|text| text.parse().ok()),
            token: token(&head.headers),
            notes_break: header(head, "x-ms-meta-brokenby").is_some(),
            if_match: header(head, "if-match").is_some(),
            if_none_match: header(head, "if-none-match").is_some(),
            came,
            forwarded: None,
            ended: None,
            status: None,
            upstream: None,
            kept: None,
            repeated: None,
            repeated_at: None,
            fault: None,
        }
    }
}

/// The token that a request wants to be kept, or an answer says is kept.
pub(super) fn token(headers: &HeaderMap) -> Option<u64> {
    headers.get("x-ms-meta-token")?.to_str().ok()?.parse().ok()
}

fn header<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

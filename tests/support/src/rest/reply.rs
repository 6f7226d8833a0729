//! Responses.

use std::{collections::BTreeMap, fmt};

use azure_core::time::parse_rfc7231;
use hyper::HeaderMap;

/// Response to a [`super::Call`].
#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Error code of the storage; empty if there is none.
    pub fn code(&self) -> &str {
        self.header("x-ms-error-code").unwrap_or_default()
    }

    /// Status and error code.
    pub fn is(&self) -> (u16, &str) {
        (self.status, self.code())
    }

    /// Asserts that the call succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }

    #[track_caller]
    pub fn etag(&self) -> &str {
        self.header("etag").unwrap_or_else(|| panic!("no ETag in {self:?}"))
    }

    /// Date of the service, in seconds since 1970.
    #[track_caller]
    pub fn date(&self) -> i64 {
        let date = self.header("date").unwrap_or_else(|| panic!("no Date in {self:?}"));
        parse_rfc7231(date).unwrap().unix_timestamp()
    }

    pub fn lease_id(&self) -> Option<&str> {
        self.header("x-ms-lease-id")
    }

    /// Lease state: available, leased, expired, breaking or broken.
    pub fn lease_state(&self) -> &str {
        self.header("x-ms-lease-state").unwrap_or_default()
    }

    pub fn metadata(&self) -> BTreeMap<String, String> {
        let entries = self.headers.iter().filter_map(|(name, value)| {
            let key = name.as_str().strip_prefix("x-ms-meta-")?;
            Some((key.to_owned(), value.to_str().unwrap().to_owned()))
        });
        entries.collect()
    }

    /// Blobs of a listing. Escaped characters are not decoded.
    pub fn listed(&self) -> Vec<ListedBlob> {
        let blobs = self.body.split("<Blob>").skip(1);
        blobs.map(|blob| ListedBlob(blob.split("</Blob>").next().unwrap().to_owned())).collect()
    }

    /// Marker of the next page of a listing; None on the last page.
    pub fn next_marker(&self) -> Option<&str> {
        element(&self.body, "NextMarker").filter(|marker| !marker.is_empty())
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:#?}\n{}", self.status, self.code(), self.headers, self.body)
    }
}

/// A blob in a listing.
#[derive(Clone, Debug)]
pub struct ListedBlob(String);

impl ListedBlob {
    pub fn name(&self) -> &str {
        self.element("Name").unwrap()
    }

    /// Any other element, such as `Etag`, `LeaseState` or `LeaseStatus`.
    pub fn element(&self, name: &str) -> Option<&str> {
        element(&self.0, name)
    }

    pub fn metadata(&self, key: &str) -> Option<&str> {
        element(self.element("Metadata")?, key)
    }
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

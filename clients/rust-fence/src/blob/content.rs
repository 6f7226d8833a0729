//! Content as read from a blob, and content to write.

use std::{collections::BTreeMap, fmt};

use azure_core::Bytes;

use super::{Error, Place, record::RESERVED};
use crate::ETag;

/// Maximum size of a fenced blob, in bytes: 64 MiB. A fenced blob is written by
/// one call.
pub const MAX_BLOB_BYTES: usize = 64 << 20;

/// Maximum total size of the caller's metadata names and values. The service
/// allows 8 KiB; the rest is for the metadata of the fence.
const MAX_METADATA_BYTES: usize = 5 << 10;

const CONTENT_TYPE: &str = "application/octet-stream";

/// Content of a blob.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Bytes,
    /// Content type, such as `text/csv`.
    pub content_type: String,
    /// The caller's metadata, with lowercase names. The metadata of the fence is
    /// left out.
    pub metadata: BTreeMap<String, String>,
    /// Version of the blob. A write with this ETag fails if the blob has changed.
    pub etag: ETag,
}

impl Content {
    /// Returns an upload with other bytes, the same content type and metadata.
    #[must_use]
    pub fn with(&self, bytes: impl Into<Bytes>) -> Upload {
        let Self { content_type, metadata, .. } = self.clone();
        Upload { bytes: bytes.into(), content_type, metadata }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content")
            .field("bytes", &self.bytes.len())
            .field("content_type", &self.content_type)
            .field("metadata", &self.metadata)
            .field("etag", &self.etag)
            .finish()
    }
}

/// Complete new content of a blob. The write resets all other properties, such
/// as the cache control, to their defaults.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    pub(super) bytes: Bytes,
    pub(super) content_type: String,
    pub(super) metadata: BTreeMap<String, String>,
}

impl Upload {
    /// Creates an upload of type `application/octet-stream` without metadata.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let (content_type, metadata) = (CONTENT_TYPE.to_owned(), BTreeMap::new());
        Self { bytes: bytes.into(), content_type, metadata }
    }

    /// Sets the content type, such as `text/csv`.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Adds metadata. Names consist of lowercase ASCII letters, values of
    /// printable ASCII characters.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Checks the limits of the service, so that an invalid upload is not sent.
    pub(super) fn check(&self, place: &Place) -> Result<(), Error> {
        let printable = |text: &str| text.bytes().all(|c| (b' '..=b'~').contains(&c));
        let size: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        let invalid_name = |name: &&String| {
            name.is_empty()
                || !name.bytes().all(|c| c.is_ascii_lowercase())
                || name.starts_with(RESERVED)
        };
        let message = if self.bytes.len() > MAX_BLOB_BYTES {
            format!(
                "{} bytes are too many; the maximum for a fenced blob is 64 MiB",
                self.bytes.len()
            )
        } else if size > MAX_METADATA_BYTES {
            format!("the metadata has {size} bytes; the maximum is {MAX_METADATA_BYTES}")
        } else if let Some(name) = self.metadata.keys().find(invalid_name) {
            format!(
                "invalid metadata name {name:?}: use lowercase letters only, and no name that \
                 begins with {RESERVED:?}"
            )
        } else if !self.metadata.values().all(|value| printable(value))
            || !printable(&self.content_type)
        {
            "metadata and content type must be printable ASCII; encode other characters".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::invalid(place, message))
    }
}

impl<T: Into<Bytes>> From<T> for Upload {
    fn from(bytes: T) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("bytes", &self.bytes.len())
            .field("content_type", &self.content_type)
            .field("metadata", &self.metadata)
            .finish()
    }
}

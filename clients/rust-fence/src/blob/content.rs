//! What is in a blob, and what is to be.

use std::{collections::BTreeMap, fmt};

use azure_core::Bytes;

use super::{Error, Place, record::RESERVED};
use crate::ETag;

/// The most that is written by one call, and so the largest blob that can be
/// fenced.
pub const LARGEST: usize = 64 << 20;

/// The most that names and values of metadata have in all, with room for the
/// fence's own.
const MOST_METADATA: usize = 5 << 10;

const CONTENT_TYPE: &str = "application/octet-stream";

/// What is in a blob.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Bytes,
    /// Their kind, such as `text/csv`.
    pub content_type: String,
    /// The user's metadata; names in small letters. The fence's own is not
    /// shown.
    pub metadata: BTreeMap<String, String>,
    /// The version. Name it in a write that is to fail if the blob has changed.
    pub etag: ETag,
}

impl Content {
    /// The same, to be written with other bytes.
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

/// What is to be in a blob: all of it. Properties that are not named here, such
/// as those for caches, have their default afterwards.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    pub(super) bytes: Bytes,
    pub(super) content_type: String,
    pub(super) metadata: BTreeMap<String, String>,
}

impl Upload {
    /// These bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let (content_type, metadata) = (CONTENT_TYPE.to_owned(), BTreeMap::new());
        Self { bytes: bytes.into(), content_type, metadata }
    }

    /// Of this kind, such as `text/csv`.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// With a name and a value besides. Names are of small letters, values of
    /// printable ASCII.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// What is known to be refused is not sent.
    pub(super) fn check(&self, place: &Place) -> Result<(), Error> {
        let printable = |text: &str| text.bytes().all(|c| (b' '..=b'~').contains(&c));
        let size: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        let wrong_name = |name: &&String| {
            name.is_empty()
                || !name.bytes().all(|c| c.is_ascii_lowercase())
                || name.starts_with(RESERVED)
        };
        let message = if self.bytes.len() > LARGEST {
            format!("{} bytes are too many: a guarded blob has 64 MiB at most", self.bytes.len())
        } else if size > MOST_METADATA {
            format!("the metadata has {size} bytes; at most {MOST_METADATA} are allowed")
        } else if let Some(name) = self.metadata.keys().find(wrong_name) {
            format!(
                "metadata can't be named {name:?}: names are of small letters, and do not begin \
                 with {RESERVED:?}. Choose another"
            )
        } else if !self.metadata.values().all(|value| printable(value))
            || !printable(&self.content_type)
        {
            "metadata and the content type must be of printable ASCII. Encode them".to_owned()
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

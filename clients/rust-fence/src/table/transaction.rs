//! Transactions: changes to rows of one partition that are applied together or not
//! at all.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    ETag, Error, Place, decode, encode,
    place::{check_key, check_row},
    property::Property,
};

/// Maximum number of changes in one transaction. The service accepts 100: one is for
/// the fence, one is reserved.
pub const MAX_CHANGES: usize = 98;

const MAX_ENTITY_BYTES: usize = 1 << 20;
const MAX_VALUE_BYTES: usize = 64 << 10;
const MAX_PROPERTIES: usize = 252;

/// Changes to rows of one partition that are applied together or not at all: at most
/// [`MAX_CHANGES`], each to a different row, and at most 4 MiB.
///
/// A commit refuses a value that can't be stored before it sends anything.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is changed before it is committed"]
pub struct Transaction {
    pub(super) changes: Vec<Change>,
}

/// Change of one row.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) row: String,
    pub(super) kind: Kind,
    /// Version that the change requires; `None` for any.
    pub(super) etag: Option<ETag>,
    content: Result<Content, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Replace,
    Merge,
    Upsert,
    UpsertMerge,
    Delete,
}

/// New properties; empty for a deletion.
#[derive(Clone, Debug, Default)]
struct Content {
    properties: Vec<(String, Property)>,
}

impl Transaction {
    /// Creates a transaction without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns true if there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Inserts a row, which must not exist.
    pub fn insert(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Insert, None, Some(value)))
    }

    /// Replaces a row, which must exist.
    pub fn replace(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Replace, None, Some(value)))
    }

    /// Replaces a row if it still has this ETag.
    pub fn replace_if(
        self,
        row: impl Into<String>,
        value: &(impl Serialize + ?Sized),
        etag: &ETag,
    ) -> Self {
        self.with(Change::new(row, Kind::Replace, Some(etag), Some(value)))
    }

    /// Sets these properties of a row, which must exist, and keeps the others.
    pub fn merge(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Merge, None, Some(value)))
    }

    /// Sets these properties of a row if it still has this ETag.
    pub fn merge_if(
        self,
        row: impl Into<String>,
        value: &(impl Serialize + ?Sized),
        etag: &ETag,
    ) -> Self {
        self.with(Change::new(row, Kind::Merge, Some(etag), Some(value)))
    }

    /// Inserts a row, or replaces the existing one.
    pub fn upsert(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Upsert, None, Some(value)))
    }

    /// Inserts a row, or sets these properties of the existing one.
    pub fn upsert_merge(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::UpsertMerge, None, Some(value)))
    }

    /// Deletes a row, which must exist.
    pub fn delete(self, row: impl Into<String>) -> Self {
        self.with(Change::delete(row, None))
    }

    /// Deletes a row if it still has this ETag.
    pub fn delete_if(self, row: impl Into<String>, etag: &ETag) -> Self {
        self.with(Change::delete(row, Some(etag)))
    }

    pub(super) fn with(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Checks the limits of the service, so that an invalid transaction is not sent.
    pub(super) fn check(&self, partition: &Place) -> Result<(), Error> {
        if self.changes.is_empty() {
            return Err(Error::invalid(partition, "the transaction is empty; add a change"));
        }
        if self.changes.len() > MAX_CHANGES {
            let count = self.changes.len();
            let message = format!(
                "{count} changes are too many for one transaction; the maximum is {MAX_CHANGES}. \
                 Split it"
            );
            return Err(Error::invalid(partition, message));
        }
        let mut rows = HashSet::new();
        for change in &self.changes {
            let place = partition.clone().row(&change.row);
            check_row(&change.row, &place)?;
            if !rows.insert(&change.row) {
                let message = "the row is changed twice in one transaction; change it once";
                return Err(Error::invalid(&place, message));
            }
            change.check(&place)?;
        }
        Ok(())
    }
}

impl Change {
    pub(super) fn new(
        row: impl Into<String>,
        kind: Kind,
        etag: Option<&ETag>,
        value: Option<&(impl Serialize + ?Sized)>,
    ) -> Self {
        let properties = value.map_or(Ok(Vec::new()), encode::properties);
        let content =
            properties.map(|properties| Content { properties }).map_err(|why| why.to_string());
        Self { row: row.into(), kind, etag: etag.cloned(), content }
    }

    pub(super) fn delete(row: impl Into<String>, etag: Option<&ETag>) -> Self {
        Self::new(row, Kind::Delete, etag, None::<&()>)
    }

    /// Checks the service's limits for an entity.
    fn check(&self, place: &Place) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::invalid(place, message));
        let properties = match &self.content {
            Ok(content) => &content.properties,
            Err(why) => return invalid(format!("the value can't be stored: {why}")),
        };
        if properties.len() > MAX_PROPERTIES {
            let count = properties.len();
            return invalid(format!(
                "{count} properties are too many; the maximum is {MAX_PROPERTIES}"
            ));
        }
        let partition = place.partition.as_deref().unwrap_or_default();
        let mut size = 4 + 2 * (utf16(partition) + utf16(&self.row));
        for (name, value) in properties {
            if decode::SYSTEM.contains(&name.as_str()) || name.contains("odata.") {
                let message = "is reserved for the service; rename it";
                return invalid(format!("the property {name} {message}"));
            }
            if value.size() > MAX_VALUE_BYTES + 4 {
                let bytes = value.size() - 4;
                let message = "the maximum is 65,536 (a string has two per UTF-16 code unit)";
                return invalid(format!("the property {name} has {bytes} bytes; {message}"));
            }
            size += 8 + 2 * utf16(name) + value.size();
        }
        if size > MAX_ENTITY_BYTES {
            return invalid(format!("the row has {size} bytes; the maximum is 1 MiB"));
        }
        Ok(())
    }

    /// Returns the encoded entity with its keys; `None` for a deletion. The error is the
    /// reason why the value can't be stored. The change must not be sent without it.
    pub(super) fn body(&self, partition: &str) -> Result<Option<String>, &str> {
        let content = self.content.as_ref().map_err(String::as_str)?;
        if self.kind == Kind::Delete {
            return Ok(None);
        }
        let mut entity = Map::new();
        entity.insert("PartitionKey".to_owned(), partition.into());
        entity.insert("RowKey".to_owned(), self.row.as_str().into());
        for (name, value) in &content.properties {
            value.write(name, &mut entity);
        }
        Ok(Some(Value::Object(entity).to_string()))
    }

    /// Returns the `If-Match` header.
    pub(super) fn if_match(&self) -> Option<&str> {
        match (self.kind, &self.etag) {
            (Kind::Insert | Kind::Upsert | Kind::UpsertMerge, _) => None,
            (_, Some(etag)) => Some(etag.as_str()),
            (_, None) => Some("*"),
        }
    }
}

fn utf16(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Checks the partition key of a place.
pub(super) fn check_partition(place: &Place) -> Result<(), Error> {
    check_key("partition", place.partition.as_deref().unwrap_or_default(), place)
}

//! Changes to rows of one partition that are made together or not at all.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    ETag, Error, Place, decode, encode,
    place::{check_key, check_row},
    property::Property,
};

/// The most changes in one transaction. The service takes 100: one is the
/// fence, and one is kept in reserve.
pub const MAX_CHANGES: usize = 98;

const LARGEST_ENTITY: usize = 1 << 20;
const LARGEST_VALUE: usize = 64 << 10;
const MOST_PROPERTIES: usize = 252;

/// Changes to rows of one partition that are made together or not at all: at
/// most [`MAX_CHANGES`], each to another row, and 4 MiB in all.
///
/// What can't be stored is told when the transaction is committed, before
/// anything is sent.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is changed before it is committed"]
pub struct Transaction {
    pub(super) changes: Vec<Change>,
}

/// One change to one row.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) row: String,
    pub(super) kind: Kind,
    /// The version that is to be changed; none for any.
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

/// What a change brings; nothing for a deletion.
#[derive(Clone, Debug, Default)]
struct Content {
    properties: Vec<(String, Property)>,
}

impl Transaction {
    /// Without changes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many changes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Adds a row, which must not be there.
    pub fn insert(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Insert, None, Some(value)))
    }

    /// Replaces a row, which must be there.
    pub fn replace(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Replace, None, Some(value)))
    }

    /// Replaces a row that still has this version.
    pub fn replace_if(
        self,
        row: impl Into<String>,
        value: &(impl Serialize + ?Sized),
        etag: &ETag,
    ) -> Self {
        self.with(Change::new(row, Kind::Replace, Some(etag), Some(value)))
    }

    /// Changes these properties of a row, which must be there, and leaves
    /// others as they are.
    pub fn merge(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Merge, None, Some(value)))
    }

    /// The same for a row that still has this version.
    pub fn merge_if(
        self,
        row: impl Into<String>,
        value: &(impl Serialize + ?Sized),
        etag: &ETag,
    ) -> Self {
        self.with(Change::new(row, Kind::Merge, Some(etag), Some(value)))
    }

    /// Adds a row, or replaces the one that is there.
    pub fn upsert(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::Upsert, None, Some(value)))
    }

    /// Adds a row, or changes these properties of the one that is there.
    pub fn upsert_merge(self, row: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.with(Change::new(row, Kind::UpsertMerge, None, Some(value)))
    }

    /// Deletes a row, which must be there.
    pub fn delete(self, row: impl Into<String>) -> Self {
        self.with(Change::delete(row, None))
    }

    /// Deletes a row that still has this version.
    pub fn delete_if(self, row: impl Into<String>, etag: &ETag) -> Self {
        self.with(Change::delete(row, Some(etag)))
    }

    pub(super) fn with(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Whether it can be sent, as far as that can be known before.
    pub(super) fn check(&self, partition: &Place) -> Result<(), Error> {
        if self.changes.is_empty() {
            return Err(Error::invalid(partition, "there is nothing to write: add a change"));
        }
        if self.changes.len() > MAX_CHANGES {
            let count = self.changes.len();
            let message = format!(
                "{count} changes are too many for one transaction; at most {MAX_CHANGES} are \
                 allowed. Divide them"
            );
            return Err(Error::invalid(partition, message));
        }
        let mut rows = HashSet::new();
        for change in &self.changes {
            let place = partition.clone().row(&change.row);
            check_row(&change.row, &place)?;
            if !rows.insert(&change.row) {
                let message = "the row is changed twice in one transaction; once is allowed";
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

    /// Azure's limits to an entity.
    fn check(&self, place: &Place) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::invalid(place, message));
        let properties = match &self.content {
            Ok(content) => &content.properties,
            Err(why) => return invalid(format!("the value can't be stored: {why}")),
        };
        if properties.len() > MOST_PROPERTIES {
            let count = properties.len();
            return invalid(format!(
                "{count} properties are too many; {MOST_PROPERTIES} can be had"
            ));
        }
        let partition = place.partition.as_deref().unwrap_or_default();
        let mut size = 4 + 2 * (utf16(partition) + utf16(&self.row));
        for (name, value) in properties {
            if decode::SYSTEM.contains(&name.as_str()) || name.contains("odata.") {
                let message = "is the service's own: keys are given apart from the value, and the \
                               time of the change is the entity's";
                return invalid(format!("the property {name} {message}"));
            }
            if value.size() > LARGEST_VALUE + 4 {
                let bytes = value.size() - 4;
                let message = "at most 65,536 are allowed (a text counts two for each character)";
                return invalid(format!("the property {name} has {bytes} bytes; {message}"));
            }
            size += 8 + 2 * utf16(name) + value.size();
        }
        if size > LARGEST_ENTITY {
            return invalid(format!("the row has {size} bytes; at most 1 MiB is allowed"));
        }
        Ok(())
    }

    /// The entity as it is sent, with its keys; none for a deletion. The error
    /// is why its value can't be stored: it must not be sent without.
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

    /// What must be there for it to be done, as a header.
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

/// Whether it can be read or written at all.
pub(super) fn check_partition(place: &Place) -> Result<(), Error> {
    check_key("partition", place.partition.as_deref().unwrap_or_default(), place)
}

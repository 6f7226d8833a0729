//! What is read from a table, and the versions of it.

use azure_core::time::OffsetDateTime;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{DateTime, ETag, Error, Place, decode, property::Property};

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity<T> {
    /// The partition key.
    pub partition: String,
    /// The row key.
    pub row: String,
    /// Its version. Name it in a write that is to fail if the row has changed.
    pub etag: ETag,
    /// When it was last changed, by the service's clock.
    pub changed: Option<OffsetDateTime>,
    /// What it holds.
    pub value: T,
}

/// An entity as it was sent.
pub(super) struct Raw(Map<String, Value>);

impl Raw {
    pub(super) fn new(value: Value) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Self(map)),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    pub(super) fn partition(&self) -> &str {
        self.text("PartitionKey").unwrap_or_default()
    }

    pub(super) fn row(&self) -> &str {
        self.text("RowKey").unwrap_or_default()
    }

    /// Reads it as a value of the user's type.
    pub(super) fn read<T: DeserializeOwned>(&self, table: &str) -> Result<Entity<T>, Error> {
        let partition = self.partition().to_owned();
        let row = self.row().to_owned();
        let place = || Place::table(table).partition(&partition).row(&row);
        let Some(etag) = self.text("odata.etag") else {
            return Err(Error::invalid(&place(), "the service sent a row without an ETag"));
        };
        let value = decode::value(&self.0).map_err(|why| {
            let message = format!("what is stored does not fit the type that it is read as: {why}");
            Error::invalid(&place(), message)
        })?;
        let changed = self.text("Timestamp").and_then(|text| {
            let text = Property::DateTime(text.to_owned());
            decode::one::<DateTime>(text).ok().map(DateTime::get)
        });
        Ok(Entity { etag: ETag::new(etag), partition, row, changed, value })
    }
}

//! Rows that were read from a table.

use azure_core::time::OffsetDateTime;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{DateTime, ETag, Error, Place, decode, property::Property};

/// Row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity<T> {
    /// Partition key.
    pub partition: String,
    /// Row key.
    pub row: String,
    /// Version of the row. A write with this ETag fails if the row has changed.
    pub etag: ETag,
    /// Time of the last change, by the clock of the service.
    pub changed: Option<OffsetDateTime>,
    /// Value of the row.
    pub value: T,
}

/// Entity as received, in JSON.
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

    /// Converts it into a value of the caller's type.
    pub(super) fn read<T: DeserializeOwned>(&self, table: &str) -> Result<Entity<T>, Error> {
        let partition = self.partition().to_owned();
        let row = self.row().to_owned();
        let place = || Place::table(table).partition(&partition).row(&row);
        let Some(etag) = self.text("odata.etag") else {
            return Err(Error::invalid(&place(), "the response has a row without an ETag"));
        };
        let value = decode::value(&self.0).map_err(|why| {
            let message = format!("the stored row does not match the requested type: {why}");
            Error::invalid(&place(), message)
        })?;
        let changed = self.text("Timestamp").and_then(|text| {
            let text = Property::DateTime(text.to_owned());
            decode::one::<DateTime>(text).ok().map(DateTime::get)
        });
        Ok(Entity { etag: ETag::new(etag), partition, row, changed, value })
    }
}

//! Fence row of a holder. The holder can write to the partition while the row exists.

use std::collections::BTreeMap;

use azure_core::Uuid;
use serde::Serialize;
use serde_json::Value;

use super::{
    ETag, Error, Place, Table,
    deadline::Deadline,
    place::fence_row,
    transaction::{Change, Kind},
};

/// Maximum number of write IDs in the row.
const MAX_RECORDED_WRITES: usize = 8;

/// Properties of a row that may be invalid.
pub(super) type Properties = BTreeMap<String, Value>;

/// Properties of the row.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    writes: String,
}

/// Last known version of the fence row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FenceRow {
    pub(super) etag: ETag,
    /// IDs of the last writes, the latest at the end.
    writes: Vec<String>,
}

/// Creates a unique write ID.
pub(super) fn new_write_id() -> String {
    Uuid::new_v4().simple().to_string()
}

impl FenceRow {
    /// Returns the change that inserts the row of a new holder.
    pub(super) fn insert(token: u64) -> Change {
        let content = Content { writes: String::new() };
        Change::new(fence_row(token), Kind::Insert, None, Some(&content))
    }

    pub(super) fn inserted(etag: ETag) -> Self {
        Self { etag, writes: Vec::new() }
    }

    /// Reads the row of a holder. Returns `None` if a newer holder has deleted it.
    pub(super) async fn read(
        table: &Table,
        partition: &Place,
        token: u64,
        by: Deadline,
    ) -> Result<Option<Self>, Error> {
        let (key, row) = (partition.partition.as_deref().unwrap_or_default(), fence_row(token));
        let Some(entity) = table.get_by::<Properties>(key, &row, by).await? else {
            return Ok(None);
        };
        match entity.value.get("Writes").and_then(Value::as_str) {
            Some(text) => {
                let writes = text.split_whitespace().map(str::to_owned).collect();
                Ok(Some(Self { etag: entity.etag, writes }))
            }
            None => {
                let message = "invalid fence: the property Writes is missing. This holder can't write \
                               to the partition anymore; the next holder can. Find the program \
                               that changed the row";
                Err(Error::needs_operator(&partition.clone().row(&row), message))
            }
        }
    }

    /// Returns true if this write was applied.
    pub(super) fn has(&self, write_id: &str) -> bool {
        self.writes.iter().any(|write| write == write_id)
    }

    /// Returns true if the row contains every write since `earlier`. Then a write that
    /// is missing was not applied.
    pub(super) fn covers(&self, earlier: &Self) -> bool {
        self.etag == earlier.etag
            || self.writes.len() < MAX_RECORDED_WRITES
            || earlier.writes.last().is_some_and(|last| self.has(last))
    }

    /// Returns true if only these writes have advanced the row since `earlier`.
    pub(super) fn only_advanced_by(&self, own: &[String], earlier: &Self) -> bool {
        let last = earlier.writes.last();
        let known = last.and_then(|last| self.writes.iter().position(|write| write == last));
        let since = &self.writes[known.map_or(0, |at| at + 1)..];
        self.etag == earlier.etag
            || (self.covers(earlier) && since.iter().all(|write| own.contains(write)))
    }

    /// Returns the change that advances the row from this version and adds a write ID.
    /// It fails if another write has advanced the row, or a newer holder has deleted
    /// it.
    pub(super) fn advance(&self, token: u64, write_id: &str) -> Change {
        let content = Content { writes: self.with(write_id).join(" ") };
        Change::new(fence_row(token), Kind::Merge, Some(&self.etag), Some(&content))
    }

    /// Updates this value after the change of [`advance`](Self::advance) was applied.
    pub(super) fn advanced(&mut self, etag: ETag, write_id: &str) {
        self.writes = self.with(write_id);
        self.etag = etag;
    }

    fn with(&self, write_id: &str) -> Vec<String> {
        let dropped = (self.writes.len() + 1).saturating_sub(MAX_RECORDED_WRITES);
        let mut writes = self.writes[dropped..].to_vec();
        writes.push(write_id.to_owned());
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(etag: &str) -> FenceRow {
        FenceRow::inserted(ETag::new(etag))
    }

    #[test]
    fn last_writes_are_recorded() {
        let mut fence = row("0");
        for number in 1..=9 {
            fence.advanced(ETag::new(number.to_string()), &format!("w{number}"));
        }
        assert!(!fence.has("w1"));
        assert!(fence.has("w2") && fence.has("w9"));
        assert_eq!(fence.writes.len(), MAX_RECORDED_WRITES);
    }

    #[test]
    fn dropped_write_ids_are_detected() {
        let first = row("0");
        assert!(first.covers(&first));
        let mut later = first.clone();
        later.advanced(ETag::new("1"), "w1");
        assert!(later.covers(&first), "no write ID was dropped yet");
        let seen = later.clone();
        for number in 2..=8 {
            later.advanced(ETag::new(number.to_string()), &format!("w{number}"));
        }
        assert!(later.covers(&seen), "it still contains the last known write");
        later.advanced(ETag::new("9"), "w9");
        assert!(!later.covers(&seen));
        assert!(!later.covers(&first));
    }

    #[test]
    fn foreign_writes_are_distinguished_from_own() {
        let own = ["mine".to_owned(), "mine too".to_owned()];
        let mut seen = row("0");
        for earlier in ["", "w1"] {
            if !earlier.is_empty() {
                seen.advanced(ETag::new("1"), earlier);
            }
            assert!(seen.only_advanced_by(&[], &seen));
            let mut later = seen.clone();
            later.advanced(ETag::new("2"), "mine");
            assert!(later.only_advanced_by(&own, &seen));
            assert!(!later.only_advanced_by(&[], &seen));
            later.advanced(ETag::new("3"), "another's");
            later.advanced(ETag::new("4"), "mine too");
            assert!(!later.only_advanced_by(&own, &seen));
        }
    }
}

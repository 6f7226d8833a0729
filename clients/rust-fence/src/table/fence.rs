//! The row whose presence lets a holder write to a partition.

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

/// How many of the last writes the row names.
const REMEMBERED: usize = 8;

/// Properties of a row that may be damaged.
pub(super) type Properties = BTreeMap<String, Value>;

/// What the row is to say.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    writes: String,
}

/// The fence row as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FenceRow {
    pub(super) etag: ETag,
    /// The numbers of the last writes, the latest at the end.
    writes: Vec<String>,
}

/// A number that is given to one write only.
pub(super) fn new_number() -> String {
    Uuid::new_v4().simple().to_string()
}

impl FenceRow {
    /// What the row of a new holder is.
    pub(super) fn insert(token: u64) -> Change {
        let content = Content { writes: String::new() };
        Change::new(fence_row(token), Kind::Insert, None, Some(&content))
    }

    pub(super) fn inserted(etag: ETag) -> Self {
        Self { etag, writes: Vec::new() }
    }

    /// Reads the row of a holder; none if a newer one has deleted it.
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
                let message = "the fence can't be read: it has no property Writes. Nobody writes \
                               to this partition until the next holder comes; find out who \
                               changed it";
                Err(Error::needs_operator(&partition.clone().row(&row), message))
            }
        }
    }

    /// Whether this write was done.
    pub(super) fn has(&self, number: &str) -> bool {
        self.writes.iter().any(|write| write == number)
    }

    /// Whether all writes are remembered that came after `earlier` was seen.
    pub(super) fn covers(&self, earlier: &Self) -> bool {
        self.etag == earlier.etag
            || self.writes.len() < REMEMBERED
            || earlier.writes.last().is_some_and(|last| self.has(last))
    }

    /// Whether nobody but these writes has moved it on since `earlier` was
    /// seen.
    pub(super) fn only_moved_by(&self, own: &[String], earlier: &Self) -> bool {
        let last = earlier.writes.last();
        let known = last.and_then(|last| self.writes.iter().position(|write| write == last));
        let since = &self.writes[known.map_or(0, |at| at + 1)..];
        self.etag == earlier.etag
            || (self.covers(earlier) && since.iter().all(|write| own.contains(write)))
    }

    /// Moves on from this version, to one that names the write. It fails if
    /// anybody has moved on meanwhile, or a newer holder has come.
    pub(super) fn move_on(&self, token: u64, number: &str) -> Change {
        let content = Content { writes: self.with(number).join(" ") };
        Change::new(fence_row(token), Kind::Merge, Some(&self.etag), Some(&content))
    }

    pub(super) fn moved_on(&mut self, etag: ETag, number: &str) {
        self.writes = self.with(number);
        self.etag = etag;
    }

    fn with(&self, number: &str) -> Vec<String> {
        let forgotten = (self.writes.len() + 1).saturating_sub(REMEMBERED);
        let mut writes = self.writes[forgotten..].to_vec();
        writes.push(number.to_owned());
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
    fn the_last_writes_are_remembered() {
        let mut fence = row("0");
        for number in 1..=9 {
            fence.moved_on(ETag::new(number.to_string()), &format!("w{number}"));
        }
        assert!(!fence.has("w1"));
        assert!(fence.has("w2") && fence.has("w9"));
        assert_eq!(fence.writes.len(), REMEMBERED);
    }

    #[test]
    fn it_is_known_what_may_have_been_forgotten() {
        let first = row("0");
        assert!(first.covers(&first));
        let mut later = first.clone();
        later.moved_on(ETag::new("1"), "w1");
        assert!(later.covers(&first), "nothing was forgotten yet");
        let seen = later.clone();
        for number in 2..=8 {
            later.moved_on(ETag::new(number.to_string()), &format!("w{number}"));
        }
        assert!(later.covers(&seen), "it still names the last that was known");
        later.moved_on(ETag::new("9"), "w9");
        assert!(!later.covers(&seen));
        assert!(!later.covers(&first));
    }

    #[test]
    fn another_s_write_is_told_from_the_own() {
        let own = ["mine".to_owned(), "mine too".to_owned()];
        let mut seen = row("0");
        for earlier in ["", "w1"] {
            if !earlier.is_empty() {
                seen.moved_on(ETag::new("1"), earlier);
            }
            assert!(seen.only_moved_by(&[], &seen));
            let mut later = seen.clone();
            later.moved_on(ETag::new("2"), "mine");
            assert!(later.only_moved_by(&own, &seen));
            assert!(!later.only_moved_by(&[], &seen));
            later.moved_on(ETag::new("3"), "another's");
            later.moved_on(ETag::new("4"), "mine too");
            assert!(!later.only_moved_by(&own, &seen));
        }
    }
}
